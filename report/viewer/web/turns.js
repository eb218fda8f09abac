// A trajectory: its question and outcome, the strip of accepted answers, and its turns: what was read, recalled,
// remembered and replied.

const LONG = 900;
const AROUND = 180;
const SHORT = 60;
const SHADES = [["at least 90%", 0.9], ["50%", 0.5], ["10%", 0.1], ["1%", 0.01], ["less", 0]];

function drawHead(page, group, sibling) {
  const { line } = group;
  const inTurns = page.shown.view === "turns";
  const tabs = group.siblings.map((one, at) => make("a", {
    class: `chip ${standing(one)}`, href: page.address({ sibling: at, turn: null, view: "turns" }),
    "aria-current": one === sibling && inTurns ? "true" : null,
  }, `${SIGNS[standing(one)]} sample ${one.sample}: ${number(one.worth)}`));
  const golds = line.golds.map((gold) => make("mark", { class: "gold", dir: "auto" }, gold));
  const button = (name, pressed, does) => make("button", { "aria-pressed": String(pressed), click: does }, name);
  const absent = `Not in this page: ${page.shown.absent}. The first that fits is shown.`;
  return make("section", { class: "head" },
    page.shown.absent ? make("p", { class: "notice", role: "alert" }, absent) : null,
    note(`${page.index.places[line.place].label}, question ${line.name}`),
    make("div", { class: "question-line" }, make("h2", { dir: "auto" }, line.question || "(no question)"),
      make("p", {}, make("span", { class: "counts" }, "accepted: "), golds.length ? golds : "(none)")),
    inTurns ? make("p", { class: "tabs" }, tabs) : null,
    inTurns ? outcomeOf(sibling) : null,
    make("div", { class: "tools" },
      button("Side by side", !inTurns, () => page.toggleView()),
      button("Changes", page.settings.difference, () => page.toggle("difference")),
      inTurns ? button("Token probabilities", page.settings.shading, () => page.toggle("shading")) : null,
      make("details", {}, make("summary", {}, "what colours mean"), legendOf(page, sibling, inTurns))));
}

function legendOf(page, sibling, inTurns) {
  return [
    page.settings.difference ? make("p", { class: "legend" }, "memory: ", make("ins", { class: "added" }, "new"),
      make("del", { class: "removed" }, "gone"), make("mark", { class: "gold" }, "accepted answer")) : null,
    page.settings.shading && inTurns && sibling.turns.some((turn) => turn.tokens)
      ? make("p", { class: "legend", id: "shades" }, "a token's probability: ",
        SHADES.map(([name], shade) => make("span", { class: `token shade${shade}` }, name))) : null,
    make("p", { class: "legend" }, "an accepted answer in a turn: ", Object.entries(EVENTS).map(([name, [sign, meaning]]) =>
      make("span", {}, make("span", { class: `key ${name}` }, sign), ` ${meaning}`))),
  ];
}

function outcomeOf(sibling) {
  const accuracy = sibling.accuracy === null ? [] : [`accuracy ${number(sibling.accuracy)}`];
  const makers = [sibling.agent, sibling.task, sibling.weight_version && `weights ${sibling.weight_version}`];
  const rows = [
    ["answer", sibling.prediction || "(none)"],
    ["outcome", sibling.failure ? `${sibling.failure}: ${sibling.failure_message ?? ""}` : sibling.outcome],
    ["reward", [number(sibling.reward), ...listed(sibling.reward_parts)].join(", ")],
    ["advantage", signed(sibling.advantage)],
    ["scores", [...accuracy, ...listed(sibling.scores)].join(", ")],
    ["counts", listed(sibling.counts).join(", ")],
    ["made by", makers.filter(Boolean).join(", ")],
  ].filter(([, value]) => value && value !== "–");
  const told = [`answer ${sibling.prediction || "(none)"}`, `reward ${number(sibling.reward)}`,
    sibling.advantage === null ? null : `advantage ${signed(sibling.advantage)}`, sibling.failure];
  return make("details", {}, make("summary", { dir: "auto" }, told.filter(Boolean).join(", ")),
    make("dl", {}, rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { dir: "auto" }, value)])));
}

// What became of each accepted answer, turn by turn: a row of cells for each, behind what the cells mean.
function drawStrip(page, sibling, facts) {
  const rows = facts.map((fact, at) => [factName(fact), sibling.turns.map((turn) => turn.events[at])])
    .filter(([, events]) => events.some(Boolean));
  const others = facts.length - rows.length;
  const about = !facts.length ? note("The accepted answers (none, or yes and no) cannot be searched for in texts.")
    : !rows.length ? note("No accepted answer stands in what was read, remembered or answered.")
    : others ? note(`${whole(others)} other accepted answer${others === 1 ? " stands" : "s stand"} nowhere`) : null;
  const head = sibling.turns.map(({ number: at }) => make("th", { scope: "col" }, make("button", {
    class: "cell", "data-turn": at, click: () => page.go({ turn: at }), "aria-label": `turn ${at + 1}`,
  }, String(at + 1))));
  const body = rows.map(([name, events]) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, name),
    events.map((event, at) => {
      const [sign, meaning] = EVENTS[event] ?? ["", "is not there"];
      return make("td", { class: event, title: `turn ${at + 1}: ${name} ${meaning}` }, sign);
    })));
  const table = make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "turn"), head)),
    make("tbody", {}, body));
  return [...(about ? [about] : []), make("section", { class: "strip", "aria-label": "Accepted answers by turn" },
    make("div", { class: "scroll", tabindex: 0 }, table))];
}

function drawTurn(page, sibling, facts, turn) {
  const events = turn.events.flatMap((event, which) =>
    event ? [chip(`${factName(facts[which])} ${EVENTS[event][1]}`, event)] : []);
  const chips = listed(turn.rewards).map((text) => chip(`earned ${text}`, "reward"));
  if (turn.stop !== "stop") chips.push(chip(`ended by ${turn.stop}`, "warn"));
  return make("article", { class: `turn ${turn.kind}`, id: `turn${turn.number}`, "data-turn": turn.number, tabindex: -1 },
    make("h3", {}, `Turn ${turn.number + 1} of ${sibling.turns.length}`, chip(turn.kind), events, chips,
      advantageChip(turn.advantage), tokenCounts(turn)),
    turn.read.map(([at, section]) => sectionBlock(page, at, section)),
    turn.recalled.text ? block("Recalled", markedText(page, turn.recalled)) : null,
    turn.kind === "final" ? block("Memory shown", markedText(page, turn.memory.text ? turn.memory : turn.before))
      : block("Memory", page.settings.difference ? changedText(page, turn) : markedText(page, turn.memory)),
    replyBlock(page, turn),
    turn.prompt.text ? make("details", {}, make("summary", {}, `Whole prompt (${whole(turn.prompt.text.length)} characters)`),
      markedText(page, turn.prompt)) : null);
}

const advantageChip = (advantage) => advantage === null ? null
  : chip(`advantage ${signed(advantage)}`, advantage < 0 ? "down" : advantage > 0 ? "up" : "");

function tokenCounts(turn) {
  const said = [`prompt ${whole(turn.prompt_tokens)}`];
  if (turn.cached_tokens !== null) said.push(`${whole(turn.cached_tokens)} cached`);
  if (turn.tokens) {
    const [lengths, hundredths] = turn.tokens;
    const mean = hundredths.reduce((sum, each) => sum + each, 0) / hundredths.length;
    said.push(`reply ${whole(lengths.length)}, log-prob mean ${number(-mean / 100)}, lowest ${number(-Math.max(...hundredths) / 100)}`);
  }
  return make("span", { class: "counts" }, `tokens: ${said.join(", ")}`);
}

const layersOf = (page, { text, gold }) => [gold, hitSpans(text, page.query)];
const markedText = (page, marked) => textBox(layered(marked.text, layersOf(page, marked)));

function sectionBlock(page, at, section) {
  const label = `Read: section ${at + 1}`;
  if (!section.text) return block(label, note("its text was not kept"));
  const layers = layersOf(page, section);
  if (section.text.length <= LONG) return block(label, textBox(layered(section.text, layers)));
  const box = textBox(excerpt(section.text, layers, 2 * AROUND, AROUND));
  const more = make("button", {
    class: "more",
    click: () => {
      box.replaceChildren(layered(section.text, layers));
      more.remove();
    },
  }, `whole section, ${whole(section.text.length)} characters`);
  return block(label, box, more);
}

// A memory with what it gained and lost; in short, with what stayed cut to its ends.
function changedText(page, turn, short = false) {
  const box = textBox(turn.changes.map((piece) => {
    const { change, text } = piece;
    const layers = layersOf(page, piece);
    if (change !== "same") return layered(text, [[{ start: 0, end: text.length, name: change }], ...layers]);
    return short && text.length > 3 * SHORT ? excerpt(text, layers, SHORT, SHORT, SHORT) : layered(text, layers);
  }));
  if (turn.memory.text && turn.before.text === turn.memory.text) {
    box.prepend(make("span", { class: "muted" }, "(unchanged) "));
  }
  return box;
}

function replyBlock(page, turn) {
  const shaded = page.settings.shading && turn.tokens;
  if (turn.kind !== "final" && !shaded && turn.reply.text.trim() === turn.memory.text.trim()) return null;
  const layers = layersOf(page, turn.reply);
  if (shaded) layers.push(shadesOf(turn.tokens));
  return block(turn.kind === "final" ? "Answer" : "Reply", textBox(layered(turn.reply.text, layers)));
}

function shadesOf([lengths, hundredths]) {
  let at = 0;
  return lengths.map((length, which) => {
    const logProb = -hundredths[which] / 100;
    const shade = SHADES.findIndex(([, least]) => logProb >= Math.log(least) - 0.005);
    const title = `log-prob ${number(logProb)}, ${(100 * Math.exp(logProb)).toPrecision(2)}%`;
    at += length;
    return { start: at - length, end: at, name: `token shade${shade}`, title };
  });
}

// --- siblings side by side: a column for each, a row for each turn ---

function drawSiblings(page, group) {
  const hidden = page.hiddenSiblings;
  const shown = group.siblings.filter((_, at) => !hidden.has(at));
  const chips = group.siblings.map((sibling, at) => make("button", {
    class: `chip ${standing(sibling)}`, "aria-pressed": String(!hidden.has(at)), click: () => page.toggleSibling(at),
  }, `${SIGNS[standing(sibling)]} sample ${sibling.sample}`));
  const heads = shown.map((sibling) => make("th", { scope: "col" }, make("div", { class: "sibling" },
    make("a", { href: page.address({ sibling: group.siblings.indexOf(sibling), turn: null, view: "turns" }) },
      `sample ${sibling.sample}`),
    chip(`${SIGNS[standing(sibling)]} ${number(sibling.worth)}`, standing(sibling)),
    advantageChip(sibling.advantage),
    make("div", { class: "text", dir: "auto" }, sibling.failure ?? (sibling.prediction || "(no answer)")))));
  const turns = Math.max(0, ...shown.map((sibling) => sibling.turns.length));
  const rows = Array.from({ length: turns }, (_, at) => make("tr", { "data-turn": at, tabindex: -1 },
    make("th", { scope: "row" }, String(at + 1)),
    shown.map((sibling) => make("td", {}, siblingTurn(page, group.line.facts, sibling.turns[at])))));
  const table = make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "turn"), heads)),
    make("tbody", {}, rows));
  table.style.width = `max(100%, calc(3rem + ${shown.length} * 8.5rem))`;
  return make("section", { class: "siblings" }, make("p", { class: "picked" }, "shown: ", chips),
    make("div", { class: "scroll", tabindex: 0 }, table));
}

function siblingTurn(page, facts, turn) {
  if (!turn) return [];
  const read = turn.read.length ? chip(`section ${turn.read.map(([at]) => at + 1).join(", ")}`) : null;
  const events = turn.events.flatMap((event, which) =>
    event ? [chip(`${EVENTS[event][0]} ${factName(facts[which])}`, event, EVENTS[event][1])] : []);
  return [make("p", { class: "facts" }, turn.kind === "memory" ? null : chip(turn.kind), read, events),
    turn.kind === "final" ? markedText(page, turn.reply) : changedText(page, turn, true)];
}
