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

// A text with layers of ranges over it, each sorted and without overlaps: [{start, end, name, title}].
function layered(text, layers, from = 0, to = text.length) {
  const cuts = new Set([from, to]);
  const next = layers.map((layer) => firstBehind(layer, from));
  layers.forEach((layer, which) => {
    for (let at = next[which]; layer[at]?.start < to; at++) {
      if (layer[at].start > from) cuts.add(layer[at].start);
      if (layer[at].end < to) cuts.add(layer[at].end);
    }
  });
  const places = [...cuts].sort((a, b) => a - b);
  const fragment = new DocumentFragment();
  for (let at = 0; at + 1 < places.length; at++) {
    const names = [];
    let title = null;
    layers.forEach((layer, which) => {
      while (layer[next[which]]?.end <= places[at]) next[which]++;
      const range = layer[next[which]];
      if (range && range.start <= places[at]) {
        names.push(range.name);
        title ??= range.title;
      }
    });
    const stretch = text.slice(places[at], places[at + 1]);
    const tag = TAGS[names.find((name) => name in TAGS)] ?? "span";
    fragment.append(names.length ? make(tag, { class: names.join(" "), title }, stretch) : stretch);
  }
  return fragment;
}

// Of sorted ranges the place of the first that ends behind `from`.
function firstBehind(ranges, from) {
  let [low, high] = [0, ranges.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[middle].end > from) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The ranges that reach into a stretch of their text, as the stretch counts.
function within(ranges, from, to) {
  const found = [];
  for (let at = firstBehind(ranges, from); ranges[at]?.start < to; at++) {
    found.push({ ...ranges[at], start: ranges[at].start - from, end: ranges[at].end - from });
  }
  return found;
}

const covering = (text, name) => (text ? [{ start: 0, end: text.length, name }] : []);

// Where the words that are searched for stand.
function hitSpans(text, query) {
  if (query.length < 2) return [];
  const spans = [];
  const searched = text.toLowerCase();
  if (searched.length !== text.length) return [];
  for (let at = searched.indexOf(query); at >= 0; at = searched.indexOf(query, at + query.length)) {
    spans.push({ start: at, end: at + query.length, name: "hit" });
  }
  return spans;
}

function block(label, ...content) {
  return make("section", { class: "block" }, make("h4", {}, label), ...content);
}

function textBox(...content) {
  const box = make("div", { class: "text", dir: "auto" }, ...content);
  if (!box.textContent) box.append(make("span", { class: "muted" }, "(empty)"));
  return box;
}

function chip(text, kind = "", title = null) {
  return make("span", { class: `chip ${kind}`, title }, text);
}

// In the place of what cannot be drawn.
function notDrawn(error) {
  console.error(error);
  return make("p", { class: "notice", role: "alert" }, `This cannot be drawn (${error.message}); mem-agent show prints it.`);
}

const note = (text, more = {}) => make("p", { class: "muted", ...more }, text);

const number = (value, digits = 2) =>
  value === null || value === undefined ? "–" : Number(value).toFixed(digits).replace(/^-(?=[0.]+$)/, "");
const signed = (value) =>
  value === null || value === undefined ? "–" : (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(2);
const whole = (value) => Number(value).toLocaleString("en");
const listed = (record) =>
  Object.entries(record).map(([name, value]) =>
    `${name.replaceAll("_", " ")} ${typeof value === "number" ? +value.toFixed(3) : value}`);

// How good a trajectory is, as a class: failed, right, wrong, between, unknown.
function standing(sibling) {
  if (sibling.failure) return "failed";
  if (sibling.worth === null) return "unknown";
  if (sibling.worth >= 0.999) return "right";
  return sibling.worth <= 0.001 ? "wrong" : "between";
}

const SIGNS = { failed: "!", right: "✓", wrong: "✗", between: "~", unknown: "?" };
