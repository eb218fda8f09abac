// What stands above the turns.

const MOST_GOLDS = 256;

// The question, its siblings, and what the one that is shown earned.
function drawHead(page, group, sibling) {
  const { line } = group;
  const tabs = group.siblings.map((one, at) => make("a", {
    class: `chip ${standing(one)}`, href: page.address({ sibling: at, turn: null, view: "turns" }),
    "aria-current": one === sibling && page.shown.view === "turns" ? "true" : null,
  }, `${SIGNS[standing(one)]} sample ${one.sample}: ${number(one.worth)}`));
  const golds = line.golds.slice(0, MOST_GOLDS).map((gold) => make("mark", { class: "gold", dir: "auto" }, gold));
  const more = line.golds.length - golds.length;
  const absent = `Not in this page: ${page.shown.absent}. The first that fits is shown.`;
  const button = (name, pressed, does) => make("button", { "aria-pressed": String(pressed), click: does }, name);
  return [
    ...(page.shown.absent ? [make("p", { class: "notice", role: "alert" }, absent)] : []),
    make("section", { class: "head" },
      note(`${page.index.places[line.place].label}, question ${nameOf(line)}`),
      make("h2", { dir: "auto" }, line.question || "(no question)"),
      make("p", {}, "accepted: ", golds, more > 0 ? ` and ${whole(more)} more` : line.golds.length ? null : "(none)"),
      make("p", { class: "tabs" }, tabs),
      page.shown.view === "turns" ? outcomeOf(sibling) : null,
      make("p", { class: "tools" },
        button("Side by side", page.shown.view === "siblings", () => page.toggleView()),
        button("Changes", page.settings.difference, () => page.toggle("difference")),
        button("Token probabilities", page.settings.shading, () => page.toggle("shading"))),
      page.settings.difference ? changeLegend() : null,
      page.settings.shading && page.shown.view === "turns" && sibling.turns.some((turn) => turn.tokens)
        ? shadeLegend() : null),
  ];
}

function outcomeOf(sibling) {
  const accuracy = sibling.accuracy === null ? [] : [`accuracy ${number(sibling.accuracy)}`];
  const scores = [...accuracy, ...listed(sibling.scores)];
  const makers = [sibling.agent, sibling.task, sibling.weights && `weights ${sibling.weights}`];
  const rows = [
    ["answer", sibling.prediction || "(none)"],
    ["outcome", sibling.failure ? `${sibling.failure}: ${sibling.failure_message ?? ""}` : sibling.outcome],
    ["reward", [number(sibling.reward), ...listed(sibling.reward_parts)].join(", ")],
    ["advantage", signed(sibling.advantage)],
    ["scores", scores.join(", ")],
    ["counts", listed(sibling.counts).join(", ")],
    ["made by", makers.filter(Boolean).join(", ")],
  ].filter(([, value]) => value && value !== "–");
  const named = rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { dir: "auto" }, value)]);
  return make("dl", {}, ...named);
}
