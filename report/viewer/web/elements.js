// What the page is made of. Texts become text nodes, never markup; characters that would hide or turn what stands
// beside them are shown as signs.

const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

const visible = (text) =>
  text.replace(STEERING, (sign) => `<${sign.charCodeAt(0).toString(16).padStart(2, "0")}>`);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined)
    .map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

const TAGS = { added: "ins", removed: "del", gold: "mark", hit: "mark" };

// A text with layers of ranges over it, each sorted and without overlaps: [{start, end, name, title}].
function layered(text, layers, from = 0, to = text.length) {
  const cuts = new Set([from, to]);
  for (const range of layers.flat()) {
    if (range.start > from && range.start < to) cuts.add(range.start);
    if (range.end > from && range.end < to) cuts.add(range.end);
  }
  const places = [...cuts].sort((a, b) => a - b);
  const next = layers.map(() => 0);
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
    fragment.append(names.length ? make(tag, { class: names.join(" "), title }, stretch) : visible(stretch));
  }
  return fragment;
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

const EAGER = 30;
const BESIDE_SHOWN = 6;

// Fills elements as they come near the window; of a few all at once. Gives what fills one and those beside it.
function filledLazily(elements, fill) {
  const once = (element) => element.dataset.filled || (fill(element), element.dataset.filled = "true");
  if (elements.length <= EAGER) {
    elements.forEach(once);
  } else {
    const near = (seen) => seen.forEach((one) => one.isIntersecting && once(one.target));
    const watch = new IntersectionObserver(near, { rootMargin: "800px" });
    elements.forEach((element) => watch.observe(element));
  }
  return (number) => {
    // Those beside it too: what is drawn later above it would push it away.
    elements.slice(Math.max(0, number - BESIDE_SHOWN), number + BESIDE_SHOWN).forEach(once);
    return elements[number];
  };
}
