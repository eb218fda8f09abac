// The list of questions of a place, with how each sibling stands; a filter, and the search through all texts.

const MOST_LISTED = 2000;
const KINDS = {
  "all questions": () => true,
  "mixed siblings": (line) => new Set(line.siblings.map(standing)).size > 1,
  "none right": (line) => !line.siblings.some((one) => standing(one) === "right"),
  "all right": (line) => line.siblings.every((one) => standing(one) === "right"),
  "with failures": (line) => line.siblings.some((one) => one.failure),
};

function drawQuestions(page) {
  const { index } = page;
  const places = make("select", {
    id: "place", "aria-label": "Rollout or length", change: () => page.openPlace(Number(places.value)),
  }, index.places.map((place, at) => make("option", { value: at }, place.label)));
  const kinds = make("select", {
    id: "kind", "aria-label": "Which questions", change: () => page.filter({ kind: kinds.value }),
  }, ...Object.keys(KINDS).map((name) => make("option", {}, name)));
  const query = make("input", {
    id: "query", type: "search", placeholder: "Search (Enter: in all texts)", "aria-label": "Search",
    input: () => page.filter({ query: query.value }),
    keydown: (event) => event.key === "Enter" && page.searchTexts(),
  });
  const list = make("div", { id: "list" });
  document.getElementById("questions").replaceChildren(
    make("div", { class: "filters" }, places, kinds, query), list);
  return { places, kinds, query, list };
}

function matching(index, place, { kind, query }) {
  const wanted = query.trim().toLowerCase();
  return index.groups.flatMap((line, at) =>
    line.place === place && KINDS[kind](line) && (!wanted || textOfLine(line).includes(wanted)) ? [at] : []);
}

function textOfLine(line) {
  return line.searched ??= [line.question_id, line.question, line.golds, line.siblings.map((one) => one.prediction)]
    .flat().join("\n").toLowerCase();
}

function fillQuestions(controls, page) {
  const found = matching(page.index, page.place, page.filters);
  const items = found.slice(0, MOST_LISTED).map((at) => questionItem(page, at));
  const count = note(`${whole(found.length)} questions`, { id: "count" });
  const more = found.length > MOST_LISTED ? [note(`${whole(found.length - MOST_LISTED)} more; search for them`)] : [];
  controls.list.replaceChildren(count, ...items, ...more);
}

function questionItem(page, at) {
  const line = page.index.groups[at];
  const marks = line.siblings.map((one) => make("span", {
    class: `mark ${standing(one)}`, title: `sample ${one.sample}: ${one.failure ?? number(one.worth)}`,
  }, SIGNS[standing(one)]));
  return make("a", {
    class: "question", href: page.address({ group: at, sibling: 0, turn: null }),
    "aria-current": at === page.shown.group ? "true" : null, "data-group": at,
  },
  make("span", { class: "id" }, nameOf(line)),
  make("span", { class: "asked", dir: "auto" }, line.question),
  make("span", { class: "marks" }, marks));
}
