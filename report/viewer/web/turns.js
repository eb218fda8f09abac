// A trajectory turn by turn: what was read, recalled, remembered and replied.

const LONG = 900;
const AROUND = 180;
const SHORT = 60;
const MOST_SECTIONS = 2000;
const LINE = 80; // what a text counts at least, in characters
const SHADES = [["at least 90%", 0.9], ["50%", 0.5], ["10%", 0.1], ["1%", 0.01], ["less", 0]];

function drawTurns(page, group, sibling) {
  const facts = group.line.facts;
  const numbers = turnsBeside(page.shown.turn, sibling.turns.length);
  const cards = numbers.map((number) => make("article", {
    class: `turn ${sibling.turns[number].kind}`, id: `turn${number}`, "data-turn": number, tabindex: -1,
  }));
  const fill = (number) => turnContent(page, sibling, facts, sibling.turns[number]);
  const others = () => otherTurns(page, numbers, sibling.turns.length);
  return {
    content: [...others(), make("div", { class: "turns" }, cards), ...others()],
    lazily: new Lazily(cards, numbers[0] ?? 0, fill, (number) => lengthOf(sibling, sibling.turns[number])),
  };
}

// The characters of all that a turn shows.
function lengthOf(sibling, turn) {
  const texts = [turn.before, turn.memory, turn.recalled, turn.prompt, turn.reply];
  return [...texts, ...turn.shown.map((number) => sibling.sections[number]?.text ?? "")]
    .reduce((sum, text) => sum + text.length + LINE, 0);
}

function turnContent(page, sibling, facts, turn) {
  const events = eventsOf(sibling, turn, facts).flatMap((event, which) =>
    event ? [chip(`${factName(facts[which])} ${EVENTS[event][1]}`, event)] : []);
  const more = turn.shown.length - MOST_SECTIONS;
  return [
    make("h3", {}, `Turn ${turn.number + 1} of ${sibling.turns.length}`, chip(turn.kind), events, earned(turn),
      tokenCounts(turn)),
    ...turn.shown.slice(0, MOST_SECTIONS).map((number) => sectionBlock(page, sibling, facts, number)),
    more > 0 ? note(`${whole(more)} more sections that it read; mem-agent show prints them`) : null,
    turn.recalled ? block("Recalled", markedText(page, turn.recalled, facts)) : null,
    memoryBlock(page, turn, facts),
    replyBlock(page, turn, facts),
    turn.prompt ? promptDetails(page, turn.prompt, facts) : null,
  ].filter(Boolean);
}

function earned(turn) {
  const chips = listed(turn.rewards).map((text) => chip(`earned ${text}`, "reward"));
  if (turn.advantage !== null) chips.push(advantageChip(turn.advantage));
  if (turn.stop !== "stop") chips.push(chip(`ended by ${turn.stop}`, "warn"));
  return chips;
}

const advantageChip = (advantage) =>
  advantage === null ? null : chip(`advantage ${signed(advantage)}`, advantage < 0 ? "down" : advantage > 0 ? "up" : "");

function tokenCounts(turn) {
  const said = [`prompt ${whole(turn.prompt_tokens)}`];
  if (turn.cached_tokens !== null) said.push(`${whole(turn.cached_tokens)} cached`);
  if (turn.log_probs) {
    const [tokens, mean, lowest] = turn.log_probs;
    said.push(`reply ${whole(tokens)}, log-prob mean ${number(mean)}, lowest ${number(lowest)}`);
  }
  return make("span", { class: "counts" }, `tokens: ${said.join(", ")}`);
}

function markedText(page, text, facts) {
  return textBox(layered(text, [goldSpans(text, facts), hitSpans(text, page.query)]));
}

function sectionBlock(page, sibling, facts, at) {
  const section = sibling.sections[at];
  const label = `Read: section ${at + 1} of ${sibling.sections.length || "?"}`;
  if (!section) return block(label, make("p", { class: "muted" }, "its text was not kept"));
  const layers = [goldSpans(section.text, facts), hitSpans(section.text, page.query)];
  if (section.text.length <= LONG) return block(label, textBox(layered(section.text, layers)));
  const box = textBox(excerpt(section.text, layers));
  const more = make("button", {
    class: "more",
    click: () => {
      box.replaceChildren(layered(section.text, layers));
      more.remove();
    },
  }, `whole section, ${whole(section.text.length)} characters`);
  return block(label, box, more);
}

// The beginning of a text, what stands around each mark, and, of what goes on behind it, the end.
function excerpt(text, layers, { head = 2 * AROUND, around = AROUND, tail = 0 } = {}) {
  const wanted = layers.flat().map((range) => ({ start: range.start - around, end: range.end + around }));
  wanted.push({ start: 0, end: head });
  if (tail) wanted.push({ start: text.length - tail, end: text.length });
  wanted.sort((a, b) => a.start - b.start);
  const fragment = new DocumentFragment();
  let at = 0;
  for (const { start, end } of wanted) {
    if (start > at) fragment.append(gap(start - at));
    const from = Math.max(start, at);
    const to = Math.min(end, text.length);
    if (to > from) fragment.append(layered(text, layers, from, to));
    at = Math.max(at, to);
  }
  if (at < text.length) fragment.append(gap(text.length - at));
  return fragment;
}

const gap = (characters) => make("span", { class: "gap" }, ` … ${whole(characters)} characters … `);

function memoryBlock(page, turn, facts) {
  if (turn.kind === "final") return block("Memory shown", markedText(page, turn.memory || turn.before, facts));
  return block("Memory", page.settings.difference ? changedText(page, turn, facts)
    : markedText(page, turn.memory, facts));
}

// A memory with what it gained and lost against the one before; in short, with what stayed cut to its ends. The
// comparison is kept with the turn: whatever else changes, the memories do not.
function changedText(page, turn, facts, short = false) {
  const { before, memory } = turn;
  turn.difference ??= difference(before, memory);
  const layers = (text) => [goldSpans(text, facts), hitSpans(text, page.query)];
  const marks = { before: layers(before), after: layers(memory) };
  const box = textBox(turn.difference.map(({ change, text, start }) => {
    const here = marks[change === "removed" ? "before" : "after"].map((one) =>
      within(one, start, start + text.length));
    if (change !== "same") return layered(text, [covering(text, change), ...here]);
    return short && text.length > 3 * SHORT ? excerpt(text, here, { head: SHORT, around: SHORT, tail: SHORT })
      : layered(text, here);
  }));
  if (before === memory && memory) box.prepend(make("span", { class: "muted" }, "(unchanged) "));
  return box;
}

function promptDetails(page, prompt, facts) {
  const summary = make("summary", {}, `Whole prompt (${whole(prompt.length)} characters)`);
  return make("details", {}, summary, markedText(page, prompt, facts));
}

function replyBlock(page, turn, facts) {
  const label = turn.kind === "final" ? "Answer" : "Reply";
  const shaded = page.settings.shading && turn.tokens;
  if (turn.kind !== "final" && !shaded && turn.reply.trim() === turn.memory.trim()) return null;
  const layers = [goldSpans(turn.reply, facts), hitSpans(turn.reply, page.query)];
  if (shaded) layers.push(shadesOf(turn.tokens));
  return block(label, textBox(layered(turn.reply, layers)));
}

function shadesOf([lengths, hundredths]) {
  let at = 0;
  return lengths.map((length, which) => {
    const logProb = -hundredths[which] / 100;
    const shade = SHADES.findIndex(([, least]) => logProb >= Math.log(least) - 0.005);
    const title = `log-prob ${number(logProb)}, ${(100 * Math.exp(logProb)).toPrecision(2)}%`;
    const range = { start: at, end: at + length, name: `token shade${shade}`, title };
    at += length;
    return range;
  }).filter((range) => range.end > range.start);
}

function shadeLegend() {
  const keys = SHADES.map(([name], shade) => make("span", { class: `token shade${shade}` }, name));
  return make("p", { class: "legend", id: "shades" }, "a token's probability: ", ...keys);
}

function changeLegend() {
  return make("p", { class: "legend" }, "memory: ", make("ins", { class: "added" }, "new"),
    make("del", { class: "removed" }, "gone"), make("mark", { class: "gold" }, "accepted answer"));
}
