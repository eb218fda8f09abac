// The page: what is shown follows the address, and everything that changes it goes through the address.

const TYPING = 200; // milliseconds that who types in the search is waited for before its words are marked

class Page {
  constructor(index) {
    this.index = index;
    this.filters = { kind: "all questions", query: "" };
    this.settings = { difference: true, shading: true };
    this.shown = shownAt(index, location.hash);
    this.followed = location.hash;
    this.place = index.groups[this.shown.group].place;
    this.hiddenSiblings = new Set();
    this.group = null; // that is decoded
    this.drawn = null; // what of `shown` is drawn
    this.turns = null;
    this.controls = drawQuestions(this);
    fillQuestions(this.controls, this);
    addEventListener("hashchange", () => this.follow());
  }

  get query() { return this.filters.query.trim().toLowerCase(); }

  address(change) { return addressOf(this.index, { ...this.shown, ...change }); }

  // Shown at once, as the next key may come before the browser tells of the new address.
  go(change) {
    const address = this.address(change);
    location.hash = address;
    this.show(address);
  }

  follow() {
    if (location.hash !== this.followed) this.show(location.hash);
  }

  async show(address) {
    this.followed = location.hash;
    this.shown = shownAt(this.index, address);
    this.place = this.index.groups[this.shown.group].place;
    if (!this.isDrawn()) {
      await this.draw();
      return;
    }
    this.drawn = this.shown;
    this.showTurn();
  }

  isDrawn() {
    return this.drawn && ["group", "sibling", "view", "absent"].every((key) => this.drawn[key] === this.shown[key]) &&
      firstBeside(this.drawn.turn) === firstBeside(this.shown.turn);
  }

  async draw() {
    const line = this.index.groups[this.shown.group];
    const asked = this.shown;
    this.drawn = null;
    try {
      const group = this.group?.line === line ? this.group : await readGroup(line);
      if (asked !== this.shown) return;
      if (this.group !== group) this.hiddenSiblings = firstHidden(group);
      this.group = group;
      this.drawMain();
    } catch (error) {
      document.getElementById("main").replaceChildren(notDrawn(error));
    }
    this.showPlace();
    document.getElementById("questions").classList.remove("open");
    this.showTurn();
  }

  drawMain() {
    const sibling = this.group.siblings[this.shown.sibling];
    const inTurns = this.shown.view === "turns";
    this.drawn = this.shown;
    this.turns = null;
    const strip = inTurns ? attempted(() => drawStrip(this, sibling, this.group.line.facts)) : [];
    const below = attempted(() => {
      const { content, lazily } = inTurns ? drawTurns(this, this.group, sibling) : drawSiblings(this, this.group);
      this.turns = lazily;
      return content;
    });
    document.getElementById("main").replaceChildren(...drawHead(this, this.group, sibling), ...strip, ...below);
  }

  // What is drawn, again; what stands at the window's top stays there, and what has the focus has it.
  redraw() {
    if (!this.drawn) return; // it is about to be drawn
    const above = [...document.querySelectorAll(".bar, .strip")].map((one) => one.getBoundingClientRect().bottom);
    const seen = scrollY > 0 ? this.turns?.seen(Math.max(...above)) : null;
    const focused = document.activeElement;
    this.drawMain();
    centreStrip();
    const again = seen && this.turns?.reveal(seen.turn);
    if (again) scrollBy({ top: again.getBoundingClientRect().top - seen.top, behavior: "instant" });
    if (!focused.isConnected) focusAgain(focused);
  }

  showPlace() {
    const listed = this.controls.list.querySelector(`[data-group="${this.shown.group}"]`);
    this.controls.places.value = this.place;
    if (!listed && !this.controls.list.querySelector(".hit-line")) fillQuestions(this.controls, this);
    for (const item of this.controls.list.querySelectorAll(".question")) {
      const current = Number(item.dataset.group) === this.shown.group;
      current ? item.setAttribute("aria-current", "true") : item.removeAttribute("aria-current");
      if (current) item.scrollIntoView({ block: "nearest" });
    }
  }

  showTurn() {
    const { turn } = this.shown;
    for (const cell of document.querySelectorAll(".strip .cell")) {
      const current = Number(cell.dataset.turn) === turn;
      current ? cell.setAttribute("aria-current", "true") : cell.removeAttribute("aria-current");
    }
    centreStrip();
    document.body.dataset.drawn = location.hash;
    if (turn === null) return;
    const target = this.turns?.reveal(turn);
    target?.scrollIntoView({ block: "start" });
    target?.focus({ preventScroll: true });
  }

  openPlace(place) {
    const first = this.index.groups.findIndex((line) => line.place === place);
    this.go({ group: first, sibling: 0, turn: null });
  }

  filter(change) {
    Object.assign(this.filters, change);
    fillQuestions(this.controls, this);
    if ("query" in change) {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.redraw(), TYPING);
    }
  }

  async searchTexts() {
    const query = this.query;
    const list = this.controls.list;
    if (query.length < 2) return;
    const all = whole(this.index.groups.length);
    const say = (done, found) =>
      list.replaceChildren(note(`searched ${whole(done)} of ${all} questions, ${whole(found)} found`));
    say(0, 0);
    const hits = await searchAll(this, query, say);
    if (this.query !== query) return;
    const more = hits.length === MOST_HITS ? ", the first ones" : "";
    const count = note(`${whole(hits.length)} turns with “${query}”${more}`, { id: "count" });
    list.replaceChildren(count, ...drawHits(this, hits, query));
  }

  stepTurn(step) {
    const last = turnsOf(this.index.groups[this.shown.group], this.shown) - 1;
    const from = this.shown.turn ?? (step > 0 ? -1 : 0);
    if (last >= 0) this.go({ turn: Math.min(last, Math.max(0, from + step)) });
  }

  stepSibling(step) {
    const count = this.index.groups[this.shown.group].siblings.length;
    this.go({ sibling: (this.shown.sibling + step + count) % count });
  }

  stepQuestion(step) {
    const listed = matching(this.index, this.place, this.filters);
    const at = listed.indexOf(this.shown.group);
    const next = listed[at < 0 ? 0 : at + step];
    if (next !== undefined) this.go({ group: next, sibling: 0, turn: null });
  }

  stepPlace(step) {
    const next = this.place + step;
    if (next >= 0 && next < this.index.places.length) this.openPlace(next);
  }

  toggleView() { this.go({ view: this.shown.view === "turns" ? "siblings" : "turns" }); }

  toggle(setting) {
    this.settings[setting] = !this.settings[setting];
    this.redraw();
  }

  toggleSibling(at) {
    this.hiddenSiblings.has(at) ? this.hiddenSiblings.delete(at) : this.hiddenSiblings.add(at);
    this.redraw();
  }

  toggleTheme() {
    const root = document.documentElement;
    const { theme } = root.dataset;
    const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  toggleKeys() {
    const dialog = document.getElementById("keys");
    dialog.open ? dialog.close() : dialog.showModal();
  }

  focusSearch() {
    document.getElementById("questions").classList.add("open");
    this.controls.query.focus();
  }
}

function focusAgain(before) {
  const alike = (one) => one.dataset.turn === before.dataset.turn &&
    (before.tabIndex < 0 || one.textContent === before.textContent);
  [...document.querySelectorAll(`#main ${before.tagName}`)].find(alike)?.focus({ preventScroll: true });
}

part("index").then(async (index) => {
  const page = new Page(index);
  fillKeys(document.getElementById("keys"));
  listenToKeys(page);
  document.getElementById("theme").addEventListener("click", () => page.toggleTheme());
  document.getElementById("help").addEventListener("click", () => page.toggleKeys());
  document.getElementById("open-questions").addEventListener("click", (event) => {
    const open = document.getElementById("questions").classList.toggle("open");
    event.currentTarget.setAttribute("aria-expanded", String(open));
  });
  await page.draw();
  performance.mark("first trajectory");
}).catch((error) => document.getElementById("main").replaceChildren(notDrawn(error)));
