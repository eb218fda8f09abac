// What became of each accepted answer, turn by turn: a row of cells for each.

const EVENTS = {
  passed: ["○", "read, and not kept"],
  entered: ["+", "enters the memory"],
  held: ["●", "is in the memory"],
  lost: ["×", "is lost from the memory"],
  answered: ["✓", "is in the answer"],
};

function drawStrip(page, sibling, facts, history) {
  const found = facts.flatMap((fact, at) => (history.some((turn) => turn[at]) ? [at] : []));
  const head = make("tr", {}, make("th", { scope: "col" }, "turn"), ...sibling.turns.map((turn) =>
    make("th", { scope: "col" }, make("button", {
      class: "cell", "data-turn": turn.number, click: () => page.go({ turn: turn.number }),
      "aria-label": `turn ${turn.number + 1}`, "aria-current": turn.number === page.shown.turn ? "true" : null,
    }, String(turn.number + 1)))));
  const cell = (fact, event, number) => {
    const [sign, meaning] = EVENTS[event] ?? ["", "is not there"];
    return make("td", { class: event, title: `turn ${number + 1}: ${fact.text} ${meaning}` }, sign);
  };
  const rows = found.map((at) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, facts[at].text),
    ...history.map((turn, number) => cell(facts[at], turn[at], number))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  return make("section", { class: "strip", "aria-label": "Accepted answers by turn" },
    make("div", { class: "scroll", tabindex: 0 }, table));
}

// What the cells mean, or why there are none.
function stripLegend(facts, history) {
  const found = facts.filter((_, at) => history.some((turn) => turn[at]));
  if (!found.length) return make("p", { class: "muted" }, nothingFound(facts));
  const others = facts.length - found.length;
  return make("p", { class: "legend" }, ...Object.entries(EVENTS).map(([name, [sign, meaning]]) =>
    make("span", {}, make("span", { class: `key ${name}` }, sign), ` ${meaning}`)),
  others ? make("span", {}, `${others} other accepted answer${others === 1 ? " stands" : "s stand"} nowhere`) : null);
}

const nothingFound = (facts) => facts.length
  ? "No accepted answer stands in what was read, remembered or answered."
  : "The accepted answers (none, or yes and no) cannot be searched for in texts.";

// Brings the turn that is shown, or else the first with an answer, into the strip's window.
function centreStrip() {
  const box = document.querySelector(".strip .scroll");
  const cell = box?.querySelector(".cell[aria-current]") ?? box?.querySelector("td:not([class=''])");
  if (!cell) return;
  const [outer, inner] = [box.getBoundingClientRect(), cell.getBoundingClientRect()];
  if (inner.right > outer.right || inner.left < outer.left + outer.width / 4) {
    box.scrollLeft += inner.left - outer.left - outer.width / 2;
  }
}
