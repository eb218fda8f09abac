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
  const letters = text.toLowerCase().replace(PUNCTUATION, "");
  // So most texts are done with; the rest takes a hundred times longer.
  if (!fact.words.every((word) => letters.includes(word))) return [];
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

// For every turn of a sibling and every fact: what became of it; in a final turn, whether the reply holds it.
function historyOf(sibling, facts) {
  sibling.history ??= sibling.turns.map((turn) => facts.map((fact) => {
    const seen = turn.shown.some((number) => sectionHolds(sibling.sections[number], fact)) ||
      holds(turn.recalled, fact) || (!turn.shown.length && holds(turn.prompt, fact));
    // An answer may come straight from a prompt with the document.
    if (turn.kind === "final") return holds(turn.reply, fact) ? "answered" : seen ? "passed" : "";
    return eventOf(seen, holds(turn.memory, fact), holds(turn.before, fact));
  }));
  return sibling.history;
}

// Siblings share their sections, so each is asked once.
function sectionHolds(section, fact) {
  if (!section) return false;
  if (!section.holds.has(fact)) section.holds.set(fact, holds(section.text, fact));
  return section.holds.get(fact);
}

const holds = (text, fact) => spansOf(text, fact).length > 0;

function eventOf(seen, held, before) {
  if (held) return before ? "held" : "entered";
  if (before) return "lost";
  return seen ? "passed" : "";
}
