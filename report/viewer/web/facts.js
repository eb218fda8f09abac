// Where accepted answers stand, and what became of them; facts.py has the rules, and a test holds the two together.

const PUNCTUATION = /[!-/:-@[-`{-~]/g;
const LEADING = /^[!-/:-@[-`{-~]+/;
const BOX = "\\boxed{";
const ARTICLES = /(?<![\p{L}\p{N}_])(?:a|an|the)(?![\p{L}\p{N}_])/gu;
// What Python calls a blank, as the metric and the terminal are Python's; a browser's \s is another set.
const BLANK = String.raw`\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;
const BLANKS = new RegExp(`[${BLANK}]+`);
const RAW_WORD = new RegExp(`[^${BLANK}]+`, "g");

function wordsOf(text, articles) {
  const words = [];
  for (const match of text.replaceAll(BOX, " ".repeat(BOX.length)).matchAll(RAW_WORD)) {
    const [raw] = match;
    const start = match.index + raw.length - raw.replace(LEADING, "").length;
    const end = match.index + lengthToLastLetter(raw);
    let form = raw.toLowerCase().replace(PUNCTUATION, "");
    if (!articles) form = form.replace(ARTICLES, " ");
    for (const word of form.split(BLANKS)) {
      if (word) words.push({ word, start, end });
    }
  }
  return words;
}

// By hand, as a search for marks before an end would begin at each of them.
function lengthToLastLetter(raw) {
  let end = raw.length;
  while (end && raw[end - 1].search(PUNCTUATION) === 0) end--;
  return end;
}

// From left to right, none over another; the first `most` of them.
function spansOf(text, fact, most = Infinity) {
  if (!text) return [];
  if (fact.words.length) return spansOfWords(text, fact, most);
  return fact.text ? spansOfCharacters(text, fact.text, most) : [];
}

function spansOfWords(text, fact, most) {
  // So most texts are done with; the rest takes a hundred times longer.
  const letters = kept(text, "letters", () => text.toLowerCase().replace(PUNCTUATION, ""));
  if (!fact.words.every((word) => letters.includes(word))) return [];
  const words = kept(text, `words ${fact.articles}`, () => wordsOf(text, fact.articles));
  const wanted = fact.words;
  const again = fact.again ??= beginningsAgain(wanted);
  const spans = [];
  let matched = 0;
  for (let at = 0; at < words.length && spans.length < most; at++) {
    while (matched && words[at].word !== wanted[matched]) matched = again[matched - 1];
    if (words[at].word === wanted[matched]) matched++;
    if (matched === wanted.length) {
      spans.push({ start: words[at + 1 - matched].start, end: words[at].end });
      matched = 0;
    }
  }
  return spans;
}

// For every beginning of a fact, how many of its last words are the fact's first ones as well (Knuth, Morris, Pratt): so
// no word of a text is looked at again.
function beginningsAgain(wanted) {
  const again = [0];
  for (let at = 1, same = 0; at < wanted.length; at++) {
    while (same && wanted[at] !== wanted[same]) same = again[same - 1];
    if (wanted[at] === wanted[same]) same++;
    again.push(same);
  }
  return again;
}

// Forms of the last text: whoever asks, asks for every fact in a text before the next text.
const lastText = { text: null, forms: {} };

function kept(text, form, make) {
  if (lastText.text !== text) Object.assign(lastText, { text, forms: {} });
  return lastText.forms[form] ??= make();
}

function spansOfCharacters(text, wanted, most) {
  const spans = [];
  for (let at = text.indexOf(wanted); at >= 0 && spans.length < most; at = text.indexOf(wanted, at + wanted.length)) {
    spans.push({ start: at, end: at + wanted.length });
  }
  return spans;
}

// The stretches of all facts together, none over another.
function goldSpans(text, facts) {
  const all = facts.flatMap((fact) => spansOf(text, fact).map((span) => ({ ...span, name: "gold" })));
  all.sort((a, b) => a.start - b.start || b.end - a.end);
  const apart = [];
  for (const span of all) {
    const before = apart.at(-1);
    if (before && span.start < before.end) before.end = Math.max(before.end, span.end);
    else apart.push(span);
  }
  return apart;
}

// For every fact what became of it in a turn; in a final turn, whether the reply holds it.
function eventsOf(sibling, turn, facts) {
  const standing = (text) => standingIn(sibling.standing, text, facts);
  const read = () => [turn.recalled, turn.shown.length ? "" : turn.prompt,
    ...turn.shown.map((number) => sibling.sections[number]?.text ?? "")].map(standing);
  return turn.events ??= told(turn, facts, read(), standing);
}

function told(turn, facts, read, standing) {
  const [reply, memory, before] = [turn.reply, turn.memory, turn.before].map(standing);
  return facts.map((_, at) => {
    const seen = read.some((found) => found[at]);
    // An answer may come straight from a prompt with the document.
    if (turn.kind === "final") return reply[at] ? "answered" : seen ? "passed" : "";
    if (memory[at]) return before[at] ? "held" : "entered";
    return before[at] ? "lost" : seen ? "passed" : "";
  });
}

// Which facts stand in a text, by their places; siblings share it, and each text is looked through once.
function standingIn(known, text, facts) {
  if (!known.has(text)) known.set(text, facts.map((fact) => spansOf(text, fact, 1).length > 0));
  return known.get(text);
}
