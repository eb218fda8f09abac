// The keyboard, and what it does.

const KEYS = [
  ["j", "k", "next, previous turn", (page, step) => page.stepTurn(step)],
  ["ArrowRight", "ArrowLeft", "next, previous sibling", (page, step) => page.stepSibling(step)],
  ["n", "p", "next, previous question of the list", (page, step) => page.stepQuestion(step)],
  [">", "<", "next, previous rollout or length", (page, step) => page.stepPlace(step)],
  ["s", null, "siblings side by side, and back", (page) => page.toggleView()],
  ["d", null, "memories with what changed, or plain", (page) => page.toggle("difference")],
  ["t", null, "tokens shaded by their probability, or plain", (page) => page.toggle("shading")],
  ["/", null, "search; Enter searches all texts", (page) => page.focusSearch()],
  ["l", null, "light or dark", (page) => page.toggleTheme()],
  ["?", null, "this list; Escape closes it", (page) => page.toggleKeys()],
];
const NAMES = { ArrowRight: "→", ArrowLeft: "←" };

function listenToKeys(page) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
    if (event.target.matches("input, select, textarea")) return;
    const found = KEYS.find(([next, previous]) => event.key === next || event.key === previous);
    if (!found || (document.getElementById("keys").open && event.key !== "?")) return;
    event.preventDefault();
    found[3](page, event.key === found[0] ? 1 : -1);
  });
}

function fillKeys(dialog) {
  const rows = KEYS.map(([next, previous, meaning]) => make("tr", {},
    make("td", {}, ...[next, previous].filter(Boolean).map((key) => make("kbd", {}, NAMES[key] ?? key))),
    make("td", {}, meaning)));
  dialog.replaceChildren(make("h2", {}, "Keys"), make("table", {}, make("tbody", {}, ...rows)),
    make("form", { method: "dialog" }, make("button", {}, "Close")));
}
