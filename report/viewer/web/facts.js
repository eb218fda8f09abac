// Where accepted answers stand, and what became of them; facts.py has the rules, and a test holds the two together.

const PUNCTUATION = /[!-/:-@[-`{-~]/g;
const LEADING = /^[!-/:-@[-`{-~]+/;
const TRAILING = /[!-/:-@[-`{-~]+$/;
const BOX = "\\boxed{";
const ARTICLES = /(?<![\p{L}\p{N}_])(?:a|an|the)(?![\p{L}\p{N}_])/gu;

function wordsOf(text, articles) {
  const words = [];
  for (const match of text.replaceAll(BOX, " ".repeat(BOX.length)).matchAll(/\S+/g)) {
    const [raw] = match;
    const start = match.index + raw.length - raw.replace(LEADING, "").length;
    const end = match.index + raw.replace(TRAILING, "").length;
    let form = raw.toLowerCase().replace(PUNCTUATION, "");
    if (!articles) form = form.replace(ARTICLES, " ");
    for (const word of form.split(/\s+/)) {
      if (word) words.push({ word, start, end });
    }
  }
  return words;
}

function spansOf(text, fact) {
  if (!text) return [];
  return fact.words.length ? spansOfWords(text, fact) : spansOfCharacters(text, fact.text);
}

function spansOfWords(text, fact) {
  const words = wordsOf(text, fact.articles);
  const spans = [];
  for (let at = 0; at + fact.words.length <= words.length; at++) {
    if (fact.words.every((word, next) => words[at + next].word === word)) {
      const last = at + fact.words.length - 1;
      spans.push({ start: words[at].start, end: words[last].end });
      at = last;
    }
  }
  return spans;
}

function spansOfCharacters(text, wanted) {
  const spans = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
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
    const last = apart.at(-1);
    if (last && span.start < last.end) last.end = Math.max(last.end, span.end);
    else apart.push(span);
  }
  return apart;
}

// For every turn of a sibling and every fact: seen, held, before; answered in what a final turn replied.
function historyOf(sibling, facts) {
  const inSection = new Map();
  const sectionHolds = (number, at) => {
    const key = `${number} ${at}`;
    if (!inSection.has(key)) inSection.set(key, holds(sibling.sections[number]?.text ?? "", facts[at]));
    return inSection.get(key);
  };
  return sibling.turns.map((turn) =>
    facts.map((fact, at) => {
      const held = holds(turn.memory, fact);
      const before = holds(turn.before, fact);
      const seen = turn.shown.some((number) => sectionHolds(number, at)) || holds(turn.recalled, fact) ||
        (!turn.shown.length && holds(turn.prompt, fact));
      const event = turn.kind === "final" ? (holds(turn.reply, fact) ? "answered" : "") : eventOf(seen, held, before);
      return { seen, held, before, event };
    }),
  );
}

const holds = (text, fact) => spansOf(text, fact).length > 0;

function eventOf(seen, held, before) {
  if (held) return before ? "held" : "entered";
  if (before) return "lost";
  return seen ? "passed" : "";
}
