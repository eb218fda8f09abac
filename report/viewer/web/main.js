// The page: what is shown follows the address, and everything that changes it goes through the address.

class Page {
  constructor(index) {
    this.index = index;
    this.filters = { kind: "all questions", query: "" };
    this.settings = { difference: true, shading: true };
    this.shown = shownAt(index, location.hash);
    this.place = index.groups[this.shown.group].place;
    this.hiddenSiblings = new Set();
    this.group = null;
    this.controls = drawQuestions(this);
    addEventListener("hashchange", () => this.follow());
  }

  get query() { return this.filters.query.trim().toLowerCase(); }

  address(change) { return addressOf(this.index, { ...this.shown, ...change }); }

  go(change) { location.hash = this.address(change); }

  async follow() {
    const before = this.shown;
    this.shown = shownAt(this.index, location.hash);
    const same = ["group", "sibling", "view", "absent"].every((key) => before[key] === this.shown[key]);
    if (same && this.group) {
      this.showTurn();
    } else {
      await this.draw();
    }
  }

  async draw() {
    const line = this.index.groups[this.shown.group];
    const asked = this.shown;
    const group = await readGroup(line);
    if (asked !== this.shown) return;
    if (this.group?.line !== line) this.hiddenSiblings = firstHidden(group);
    this.group = group;
    this.drawMain();
    this.showPlace(line.place);
    document.getElementById("questions").classList.remove("open");
    this.showTurn();
  }

  drawMain() {
    const sibling = this.group.siblings[this.shown.sibling];
    const { facts } = this.group.line;
    const history = historyOf(sibling, facts);
    const above = this.shown.view === "siblings" ? []
      : [stripLegend(facts, history), drawStrip(this, sibling, facts, history)];
    this.turns = above.length ? drawTurns(this, this.group, sibling, history) : drawSiblings(this, this.group);
    const body = [...above, this.turns.element];
    document.getElementById("main").replaceChildren(...drawHead(this, this.group, sibling), ...body);
  }

  showPlace(place) {
    const listed = this.controls.list.querySelector(`[data-group="${this.shown.group}"]`);
    this.place = place;
    this.controls.places.value = place;
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
    const target = this.turns.reveal(turn);
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
    if ("query" in change) this.drawMain();
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
    const last = this.group.siblings[this.shown.sibling].turns.length - 1;
    const from = this.shown.turn ?? (step > 0 ? -1 : 0);
    this.go({ turn: Math.min(last, Math.max(0, from + step)) });
  }

  stepSibling(step) {
    const count = this.group.siblings.length;
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
    this.drawMain();
  }

  toggleSibling(at) {
    this.hiddenSiblings.has(at) ? this.hiddenSiblings.delete(at) : this.hiddenSiblings.add(at);
    this.drawMain();
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

// The question, its siblings, and what the one that is shown earned.
function drawHead(page, group, sibling) {
  const { line } = group;
  const tabs = group.siblings.map((one, at) => make("a", {
    class: `chip ${standing(one)}`, href: page.address({ sibling: at, turn: null, view: "turns" }),
    "aria-current": one === sibling && page.shown.view === "turns" ? "true" : null,
  }, `${SIGNS[standing(one)]} sample ${one.sample}: ${number(one.worth)}`));
  const absent = `Not in this page: ${page.shown.absent}. The first that fits is shown.`;
  const button = (name, pressed, does) => make("button", { "aria-pressed": String(pressed), click: does }, name);
  return [
    ...(page.shown.absent ? [make("p", { class: "notice", role: "alert" }, absent)] : []),
    ...page.index.notes.map((said) => make("p", { class: "notice" }, said)),
    make("section", { class: "head" },
      note(`${page.index.places[line.place].label}, question ${line.question_id || line.group}`),
      make("h2", { dir: "auto" }, line.question || "(no question)"),
      make("p", {}, "accepted: ", ...line.golds.map((gold) => make("mark", { class: "gold", dir: "auto" }, gold)),
        line.golds.length ? null : "(none)"),
      make("p", { class: "tabs" }, ...tabs),
      page.shown.view === "turns" ? outcomeOf(sibling) : null,
      make("p", { class: "tools" },
        button("Side by side", page.shown.view === "siblings", () => page.toggleView()),
        button("Changes", page.settings.difference, () => page.toggle("difference")),
        button("Token probabilities", page.settings.shading, () => page.toggle("shading"))),
      page.settings.difference ? changeLegend() : null,
      page.settings.shading && page.shown.view === "turns" && sibling.turns.some((turn) => turn.tokens)
        ? shadeLegend() : null),
  ];
}

function outcomeOf(sibling) {
  const accuracy = sibling.accuracy === null ? [] : [`accuracy ${number(sibling.accuracy)}`];
  const scores = [...accuracy, ...listed(sibling.scores)];
  const makers = [sibling.agent, sibling.task, sibling.weights && `weights ${sibling.weights}`];
  const rows = [
    ["answer", sibling.prediction || "(none)"],
    ["outcome", sibling.failure ? `${sibling.failure}: ${sibling.failure_message ?? ""}` : sibling.outcome],
    ["reward", [number(sibling.reward), ...listed(sibling.reward_parts)].join(", ")],
    ["advantage", signed(sibling.advantage)],
    ["scores", scores.join(", ")],
    ["counts", listed(sibling.counts).join(", ")],
    ["made by", makers.filter(Boolean).join(", ")],
  ].filter(([, value]) => value && value !== "–");
  const named = rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { dir: "auto" }, value)]);
  return make("dl", {}, ...named);
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
});
