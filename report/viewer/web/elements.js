// What the page is made of. Texts become text nodes, never markup.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  // One by one: a call takes only so many arguments.
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

const TAGS = { added: "ins", removed: "del", gold: "mark", hit: "mark" };

// A text, or a stretch of it, with layers of ranges over it: [{start, end, name, title}].
function layered(text, layers, from = 0, to = text.length) {
  const ranges = layers.flat().filter((range) => range.end > from && range.start < to);
  const inside = ranges.flatMap(({ start, end }) => [start, end]).filter((at) => at > from && at < to);
  const places = [...new Set([from, ...inside, to])].sort((a, b) => a - b);
  const starting = [...ranges].sort((a, b) => a.start - b.start);
  const fragment = new DocumentFragment();
  let open = [];
  for (let at = 0, next = 0; at + 1 < places.length; at++) {
    while (next < starting.length && starting[next].start <= places[at]) open.push(starting[next++]);
    open = open.filter((range) => range.end > places[at]);
    const names = open.map((range) => range.name);
    const stretch = text.slice(places[at], places[at + 1]);
    const tag = TAGS[names.find((name) => name in TAGS)] ?? "span";
    const title = open.find((range) => range.title)?.title;
    fragment.append(names.length ? make(tag, { class: names.join(" "), title }, stretch) : stretch);
  }
  return fragment;
}

// Where the words that are searched for stand.
function hitSpans(text, query) {
  const searched = text.toLowerCase();
  const spans = [];
  if (query.length < 2 || searched.length !== text.length) return spans;
  for (let at = searched.indexOf(query); at >= 0; at = searched.indexOf(query, at + query.length)) {
    spans.push({ start: at, end: at + query.length, name: "hit" });
  }
  return spans;
}

// The beginning of a text, and what stands around each mark.
function excerpt(text, layers, head, around, tail = 0) {
  const wanted = layers.flat().map(({ start, end }) => ({ start: start - around, end: end + around }));
  wanted.push({ start: 0, end: head });
  if (tail) wanted.push({ start: text.length - tail, end: text.length });
  wanted.push({ start: text.length, end: text.length });
  const fragment = new DocumentFragment();
  let at = 0;
  for (const { start, end } of wanted.sort((a, b) => a.start - b.start)) {
    if (start > at) fragment.append(make("span", { class: "gap" }, ` … ${whole(start - at)} characters … `));
    if (end > Math.max(start, at)) fragment.append(layered(text, layers, Math.max(start, at), Math.min(end, text.length)));
    at = Math.max(at, start, end);
  }
  return fragment;
}

function block(label, ...content) {
  return make("section", { class: "block" }, make("h4", {}, label), ...content);
}

function textBox(...content) {
  const box = make("div", { class: "text", dir: "auto" }, ...content);
  if (!box.textContent) box.append(make("span", { class: "muted" }, "(empty)"));
  return box;
}

const chip = (text, kind = "", title = null) => make("span", { class: `chip ${kind}`, title }, text);
const note = (text, more = {}) => make("p", { class: "muted", ...more }, text);
const number = (value, digits = 2) =>
  value === null || value === undefined ? "–" : Number(value).toFixed(digits).replace(/^-(?=[0.]+$)/, "");
const signed = (value) =>
  value === null || value === undefined ? "–" : (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(2);
const whole = (value) => Number(value).toLocaleString("en");
const listed = (record) =>
  Object.entries(record).map(([name, value]) =>
    `${name} ${typeof value === "number" ? +value.toFixed(3) : value}`);

// In the place of what cannot be drawn.
function notDrawn(error) {
  console.error(error);
  return make("p", { class: "notice", role: "alert" }, `This cannot be drawn (${error.message}); mem-agent show prints it.`);
}

// How good a trajectory is, as a class: failed, right, wrong, between, unknown.
function standing(sibling) {
  if (sibling.failure) return "failed";
  if (sibling.worth === null) return "unknown";
  if (sibling.worth >= 0.999) return "right";
  return sibling.worth <= 0.001 ? "wrong" : "between";
}

const SIGNS = { failed: "!", right: "✓", wrong: "✗", between: "~", unknown: "?" };

// What became of an accepted answer in a turn.
const EVENTS = {
  passed: ["○", "read, and not kept"],
  entered: ["+", "enters the memory"],
  held: ["●", "is in the memory"],
  lost: ["×", "is lost from the memory"],
  answered: ["✓", "is in the answer"],
};
const factName = (text) => (text.length > 200 ? `${text.slice(0, 199)}…` : text);
