// Siblings side by side: a column for each, a row for each turn.

const FIRST_SHOWN = 8;

function drawSiblings(page, group) {
  const facts = group.line.facts;
  const hidden = page.hiddenSiblings;
  const shown = group.siblings.filter((_, at) => !hidden.has(at));
  const histories = shown.map((sibling) => historyOf(sibling, facts));
  const chips = group.siblings.map((sibling, at) => make("button", {
    class: `chip ${standing(sibling)}`, "aria-pressed": String(!hidden.has(at)), click: () => page.toggleSibling(at),
  }, `${SIGNS[standing(sibling)]} sample ${sibling.sample}`));
  const heads = shown.map((sibling) => make("th", { scope: "col" }, siblingHead(page, group, sibling)));
  const head = make("tr", {}, make("th", { scope: "col" }, "turn"), ...heads);
  const turns = Math.max(0, ...shown.map((sibling) => sibling.turns.length));
  const rows = Array.from({ length: turns }, (_, at) =>
    make("tr", { "data-turn": at, tabindex: -1 }, make("th", { scope: "row" }, String(at + 1))));
  const fill = (row) => row.append(...shown.map((sibling, which) =>
    make("td", {}, ...siblingTurn(page, sibling, facts, Number(row.dataset.turn), histories[which]))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  table.style.width = `max(100%, calc(3rem + ${shown.length} * 11rem))`;
  const element = make("section", { class: "siblings" },
    make("p", { class: "picked" }, "shown: ", ...chips), make("div", { class: "scroll", tabindex: 0 }, table));
  return { element, reveal: filledLazily(rows, fill) };
}

function siblingHead(page, group, sibling) {
  const at = group.siblings.indexOf(sibling);
  return make("div", { class: "sibling" },
    make("a", { href: page.address({ sibling: at, turn: null, view: "turns" }) }, `sample ${sibling.sample}`),
    chip(`${SIGNS[standing(sibling)]} ${number(sibling.worth)}`, standing(sibling)),
    advantageChip(sibling.advantage),
    make("div", { class: "text", dir: "auto" }, sibling.failure ?? (sibling.prediction || "(no answer)")));
}

function siblingTurn(page, sibling, facts, at, history) {
  const turn = sibling.turns[at];
  if (!turn) return [];
  const read = turn.shown.length ? [chip(`section ${turn.shown.map((number) => number + 1).join(", ")}`)] : [];
  const events = history[at].flatMap((event, which) =>
    event ? [chip(`${EVENTS[event][0]} ${facts[which].text}`, event, EVENTS[event][1])] : []);
  const text = turn.kind === "final" ? markedText(page, turn.reply, facts)
    : changedText(page, turn.before, turn.memory, facts, true);
  return [make("p", { class: "facts" }, chip(turn.kind), ...read, ...events), text];
}

const firstHidden = (group) => new Set(group.siblings.map((_, at) => at).slice(FIRST_SHOWN));
