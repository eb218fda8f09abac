// Siblings side by side: a column for each, a row for each turn.

const FIRST_SHOWN = 8;
const MOST_NUMBERS = 100;

function drawSiblings(page, group) {
  const facts = group.line.facts;
  const hidden = page.hiddenSiblings;
  const shown = group.siblings.filter((_, at) => !hidden.has(at));
  const chips = group.siblings.map((sibling, at) => make("button", {
    class: `chip ${standing(sibling)}`, "aria-pressed": String(!hidden.has(at)), click: () => page.toggleSibling(at),
  }, `${SIGNS[standing(sibling)]} sample ${sibling.sample}`));
  const heads = shown.map((sibling) => make("th", { scope: "col" }, siblingHead(page, group, sibling)));
  const turns = shown.reduce((most, sibling) => Math.max(most, sibling.turns.length), 0);
  const numbers = turnsBeside(page.shown.turn, turns);
  const rows = numbers.map((number) =>
    make("tr", { "data-turn": number, tabindex: -1 }, make("th", { scope: "row" }, String(number + 1))));
  const fill = (number) => shown.map((sibling) => make("td", {}, siblingTurn(page, sibling, facts, number)));
  const work = (number) => shown.reduce((sum, sibling) =>
    sum + (number in sibling.turns ? lengthOf(sibling, sibling.turns[number]) : 0), 0);
  const table = make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "turn"), heads)),
    make("tbody", {}, rows));
  table.style.width = `max(100%, calc(3rem + ${shown.length} * 11rem))`;
  const element = make("section", { class: "siblings" }, make("p", { class: "picked" }, "shown: ", chips),
    otherTurns(page, numbers, turns),
    make("div", { class: "scroll", tabindex: 0 }, table));
  return { content: [element], lazily: new Lazily(rows, numbers[0] ?? 0, fill, work) };
}

function siblingHead(page, group, sibling) {
  const at = group.siblings.indexOf(sibling);
  return make("div", { class: "sibling" },
    make("a", { href: page.address({ sibling: at, turn: null, view: "turns" }) }, `sample ${sibling.sample}`),
    chip(`${SIGNS[standing(sibling)]} ${number(sibling.worth)}`, standing(sibling)),
    advantageChip(sibling.advantage),
    make("div", { class: "text", dir: "auto" }, sibling.failure ?? (sibling.prediction || "(no answer)")));
}

function siblingTurn(page, sibling, facts, at) {
  const turn = sibling.turns[at];
  if (!turn) return [];
  const sections = turn.shown.slice(0, MOST_NUMBERS).map((number) => number + 1).join(", ");
  const read = turn.shown.length ? [chip(`section ${sections}${turn.shown.length > MOST_NUMBERS ? ", …" : ""}`)] : [];
  const events = eventsOf(sibling, turn, facts).flatMap((event, which) =>
    event ? [chip(`${EVENTS[event][0]} ${factName(facts[which])}`, event, EVENTS[event][1])] : []);
  const text = turn.kind === "final" ? markedText(page, turn.reply, facts) : changedText(page, turn, facts, true);
  return [make("p", { class: "facts" }, chip(turn.kind), read, events), text];
}

const firstHidden = (group) => new Set(group.siblings.map((_, at) => at).slice(FIRST_SHOWN));
