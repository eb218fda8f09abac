// The page: what is shown follows the address, and everything that changes it goes through the address.

const turnNamed = (turn) => `#main [data-turn="${turn}"][tabindex]`;
const TYPING = 200; // milliseconds that who types in the search is waited for before its words are marked
const FIRST_SHOWN = 8; // siblings side by side
const KEYS = [
  ["j", "k", "next, previous turn", (page, step) => page.stepTurn(step)],
  ["ArrowRight", "ArrowLeft", "next, previous sibling", (page, step) => page.stepSibling(step)],
  ["n", "p", "next, previous question of the list", (page, step) => page.stepQuestion(step)],
  [">", "<", "next, previous rollout or length", (page, step) => page.stepPlace(step)],
  ["s", null, "siblings side by side, and back", (page) => page.toggleView()],
  ["d", null, "memories with what changed, or plain", (page) => page.toggle("difference")],
  ["t", null, "tokens shaded by their probability, or plain", (page) => page.toggle("shading")],
  ["/", null, "search; Enter searches all texts", (page) => page.focusSearch()],
  ["?", null, "this list; Escape closes it", (page) => page.toggleKeys()],
];

function markCurrent(element, current) {
  if (current) element.setAttribute("aria-current", "true");
  else element.removeAttribute("aria-current");
}

class Page {
  constructor(index) {
    this.index = index;
    index.again = namedAgain(index.groups);
    this.filters = { kind: "all questions", query: "" };
    this.settings = { difference: true, shading: true };
    this.hiddenSiblings = new Set();
    this.group = null; // that is decoded
    this.drawn = null; // what of `shown` is drawn
    this.shown = shownAt(index, location.hash);
    this.followed = location.hash;
    this.controls = drawQuestions(this);
    fillQuestions(this);
    addEventListener("hashchange", () => location.hash !== this.followed && this.show(location.hash));
  }

  get query() { return this.filters.query.trim().toLowerCase(); }

  get line() { return this.index.groups[this.shown.group]; }

  get place() { return this.line.place; }

  address(change) { return addressOf(this.index, { ...this.shown, ...change }); }

  // Shown at once, as the next key may come before the browser tells of the new address.
  go(change) {
    const address = this.address(change);
    location.hash = address;
    return this.show(address);
  }

  async show(address) {
    this.followed = location.hash;
    this.shown = shownAt(this.index, address);
    const same = ["group", "sibling", "view", "absent"].every((key) => this.drawn?.[key] === this.shown[key]);
    if (!same) await this.draw();
    else this.drawn = this.shown;
    if (this.drawn === this.shown) this.showTurn();
  }

  async draw() {
    const asked = this.shown;
    this.drawn = null;
    try {
      const group = this.group?.line === this.line ? this.group : await readGroup(this.index, asked.group);
      if (asked !== this.shown) return;
      if (this.group !== group) this.hiddenSiblings = new Set(group.siblings.map((_, at) => at).slice(FIRST_SHOWN));
      this.group = group;
      this.drawMain();
    } catch (error) {
      document.getElementById("main").replaceChildren(notDrawn(error));
    }
    this.showPlace();
    document.getElementById("questions").classList.remove("open");
  }

  drawMain() {
    const { facts } = this.group.line;
    document.body.dataset.view = this.shown.view;
    const sibling = this.group.siblings[this.shown.sibling];
    const below = this.shown.view === "siblings" ? [drawSiblings(this, this.group)]
      : [...drawStrip(this, sibling, facts), ...sibling.turns.map((turn) => drawTurn(this, sibling, facts, turn))];
    document.getElementById("main").replaceChildren(drawHead(this, this.group, sibling), ...below);
    this.drawn = this.shown;
    this.markTurn();
  }

  // What is drawn, again; what stands at the window's top stays there, and the turn that has the focus keeps it.
  redraw() {
    if (!this.drawn) return; // it is about to be drawn
    const focused = document.activeElement.closest("#main [data-turn][tabindex]");
    const top = Math.max(...[...document.querySelectorAll(".bar, .strip")].map((one) => one.getBoundingClientRect().bottom));
    const seen = [...document.querySelectorAll("#main [data-turn][tabindex]")]
      .find((one) => one.getBoundingClientRect().bottom > top);
    const before = seen?.getBoundingClientRect().top;
    this.drawMain();
    if (focused) document.querySelector(turnNamed(focused.dataset.turn))?.focus({ preventScroll: true });
    const again = seen && scrollY > 0 && document.querySelector(turnNamed(seen.dataset.turn));
    if (again) scrollBy({ top: again.getBoundingClientRect().top - before, behavior: "instant" });
  }

  showPlace() {
    const { list, places } = this.controls;
    places.value = this.place;
    if (!list.querySelector(`[data-group="${this.shown.group}"], .hit-line`)) fillQuestions(this);
    for (const item of list.querySelectorAll(".question")) {
      const current = Number(item.dataset.group) === this.shown.group;
      markCurrent(item, current);
      if (current) item.scrollIntoView({ block: "nearest" });
    }
  }

  // Brings the turn that is shown, or else the first with an answer, into the strip's window.
  markTurn() {
    for (const cell of document.querySelectorAll(".strip .cell")) {
      markCurrent(cell, Number(cell.dataset.turn) === this.shown.turn);
    }
    const box = document.querySelector(".strip .scroll");
    const cell = box?.querySelector(".cell[aria-current]") ?? box?.querySelector("td:not([class=''])");
    if (cell) box.scrollLeft = cell.offsetLeft - box.clientWidth / 2;
  }

  showTurn() {
    this.markTurn();
    document.body.dataset.drawn = location.hash;
    const target = this.shown.turn === null ? null
      : document.querySelector(turnNamed(this.shown.turn));
    target?.scrollIntoView({ block: "start" });
    target?.focus({ preventScroll: true });
  }

  openPlace(place) {
    this.go({ group: this.index.groups.findIndex((line) => line.place === place), sibling: 0, turn: null });
  }

  filter(change) {
    Object.assign(this.filters, change);
    fillQuestions(this);
    if ("query" in change) {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.redraw(), TYPING);
    }
  }

  async searchTexts() {
    const { query, controls: { list } } = this;
    if (query.length < 2) return;
    const say = (done, found) => list.replaceChildren(
      note(`searched ${whole(done)} of ${whole(this.index.groups.length)} questions, ${whole(found)} found`));
    say(0, 0);
    const hits = await searchAll(this, query, say);
    if (this.query !== query) return;
    const more = hits.length === MOST_HITS ? ", the first ones" : "";
    list.replaceChildren(note(`${whole(hits.length)} turns with “${query}”${more}`, { id: "count" }),
      ...drawHits(this, hits, query));
  }

  stepTurn(step) {
    const last = turnsOf(this.line, this.shown) - 1;
    const from = this.shown.turn ?? (step > 0 ? -1 : 0);
    if (last >= 0) this.go({ turn: Math.min(last, Math.max(0, from + step)) });
  }

  stepSibling(step) {
    const count = this.line.siblings.length;
    const sibling = (this.shown.sibling + step + count) % count;
    const last = turnsOf(this.line, { ...this.shown, sibling }) - 1;
    this.go({ sibling, turn: this.shown.turn === null || last < 0 ? null : Math.min(this.shown.turn, last) });
  }

  stepQuestion(step) {
    const listed = matching(this.index, this.place, this.filters);
    const at = listed.indexOf(this.shown.group);
    const next = listed[at < 0 ? 0 : at + step];
    if (next !== undefined) this.go({ group: next, sibling: 0, turn: null });
  }

  stepPlace(step) {
    if (this.index.places[this.place + step]) this.openPlace(this.place + step);
  }

  toggleView() { this.go({ view: this.shown.view === "turns" ? "siblings" : "turns" }); }

  toggle(setting) {
    this.settings[setting] = !this.settings[setting];
    this.redraw();
  }

  toggleSibling(at) {
    if (!this.hiddenSiblings.delete(at)) this.hiddenSiblings.add(at);
    this.redraw();
  }

  toggleKeys() {
    const dialog = document.getElementById("keys");
    if (dialog.open) dialog.close();
    else dialog.showModal();
  }

  focusSearch() {
    document.getElementById("questions").classList.add("open");
    this.controls.query.focus();
  }
}

function listenToKeys(page) {
  const dialog = document.getElementById("keys");
  const shown = { ArrowRight: "→", ArrowLeft: "←" };
  dialog.replaceChildren(make("h2", {}, "Keys"), make("table", {}, make("tbody", {}, KEYS.map(([next, previous, meaning]) =>
    make("tr", {}, make("td", {}, [next, previous].filter(Boolean).map((key) => make("kbd", {}, shown[key] ?? key))),
      make("td", {}, meaning))))), make("form", { method: "dialog" }, make("button", {}, "Close")));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
    if (event.target.matches("input, select, textarea")) return;
    const found = KEYS.find(([next, previous]) => event.key === next || event.key === previous);
    if (!found || (dialog.open && event.key !== "?")) return;
    event.preventDefault();
    found[3](page, event.key === found[0] ? 1 : -1);
  });
}

part("index").then(async (index) => {
  const page = new Page(index);
  listenToKeys(page);
  document.getElementById("help").addEventListener("click", () => page.toggleKeys());
  document.getElementById("open-questions").addEventListener("click", (event) => {
    const open = document.getElementById("questions").classList.toggle("open");
    event.currentTarget.setAttribute("aria-expanded", String(open));
  });
  await page.show(location.hash);
}).catch((error) => document.getElementById("main").replaceChildren(notDrawn(error)));
