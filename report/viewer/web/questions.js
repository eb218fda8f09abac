// The list of questions of a place, with how each sibling stands; a filter, and the search through all texts.

const MOST_LISTED = 2000;
const MOST_HITS = 200;
const BESIDE = 50;
const KINDS = {
  "all questions": () => true,
  "mixed siblings": isMixed,
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
  document.getElementById("questions").replaceChildren(make("div", { class: "filters" }, places, kinds, query), list);
  return { places, query, list };
}

function matching(index, place, { kind, query }) {
  const wanted = query.trim().toLowerCase();
  const textOf = (line) => [line.name, line.question, line.golds, line.siblings.map((one) => one.prediction)]
    .flat().join("\n").toLowerCase();
  return index.groups.flatMap((line, at) =>
    line.place === place && KINDS[kind](line) && (!wanted || textOf(line).includes(wanted)) ? [at] : []);
}

function fillQuestions(page) {
  const found = matching(page.index, page.place, page.filters);
  const more = found.length - MOST_LISTED;
  page.controls.list.replaceChildren(note(`${whole(found.length)} questions`, { id: "count" }),
    ...found.slice(0, MOST_LISTED).map((at) => questionItem(page, at)),
    ...(more > 0 ? [note(`${whole(more)} more; search for them`)] : []));
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
  make("span", { class: "id" }, line.name),
  make("span", { class: "asked", dir: "auto" }, line.question),
  make("span", { class: "marks" }, marks));
}

// Memories, replies, what was recalled, sections: the first hits.
async function searchAll(page, query, progress) {
  const hits = [];
  for (const at of page.index.groups.keys()) {
    if (hits.length >= MOST_HITS || page.query !== query) break;
    hits.push(...hitsOf(await readGroup(page.index, at), at, query));
    if (at % 25 === 24) {
      progress(at + 1, hits.length);
      await new Promise(requestAnimationFrame);
    }
  }
  return hits.slice(0, MOST_HITS);
}

// The first hit in each turn of each sibling; a section counts once for all siblings that read it.
function hitsOf(group, at, query) {
  const [hits, seen] = [[], new Set()];
  for (const [which, sibling] of group.siblings.entries()) {
    for (const turn of sibling.turns) {
      const sections = turn.read.filter(([, section]) => !seen.has(section)).map(([, section]) => section);
      sections.forEach((section) => seen.add(section));
      const texts = [["memory", turn.memory], ["reply", turn.reply], ["recalled", turn.recalled],
        ...sections.map((section) => ["section", section]), ["prompt", turn.prompt]];
      const found = texts.find(([, { text }]) => text.toLowerCase().includes(query));
      if (found) {
        const [what, { text }] = found;
        const place = text.toLowerCase().indexOf(query);
        const around = text.slice(Math.max(0, place - BESIDE), place + query.length + BESIDE);
        hits.push({ group: at, sibling: which, turn: turn.number, what, text: around });
      }
    }
  }
  return hits;
}

function drawHits(page, hits, query) {
  return hits.map((hit) => {
    const line = page.index.groups[hit.group];
    const where = [page.index.places[line.place].label, `question ${line.name}`,
      `sample ${line.siblings[hit.sibling].sample}`, `turn ${hit.turn + 1}: ${hit.what}`].join(", ");
    return make("a", { class: "hit-line", href: page.address({ ...hit, view: "turns" }) },
      make("span", { class: "id" }, where),
      make("span", { class: "asked", dir: "auto" }, layered(hit.text, [hitSpans(hit.text, query)])));
  });
}
