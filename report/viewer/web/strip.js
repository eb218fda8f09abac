// What became of each accepted answer, turn by turn: a row of cells for each.

const EVENTS = {
  passed: ["○", "read, and not kept"],
  entered: ["+", "enters the memory"],
  held: ["●", "is in the memory"],
  lost: ["×", "is lost from the memory"],
  answered: ["✓", "is in the answer"],
};

const MOST_STRIP_CELLS = 30_000;
const LONGEST_FACT = 200;

const factName = ({ text }) => (text.length > LONGEST_FACT ? `${text.slice(0, LONGEST_FACT - 1)}…` : text);

// What the cells mean, or why there are none, and the cells.
function drawStrip(page, sibling, facts) {
  const numbers = turnsBeside(page.shown.turn, sibling.turns.length);
  const history = numbers.map((number) => eventsOf(sibling, sibling.turns[number], facts));
  const found = facts.map((_, at) => at).filter((at) => history.some((turn) => turn[at]));
  const rows = found.slice(0, Math.max(1, Math.floor(MOST_STRIP_CELLS / Math.max(1, numbers.length))));
  const said = numbers.length < sibling.turns.length ? " in these turns" : "";
  return [stripLegend(facts.length, found.length, rows.length, said),
    stripTable(page, numbers, rows.map((at) => [factName(facts[at]), history.map((turn) => turn[at])]))];
}

function stripTable(page, numbers, rows) {
  const head = numbers.map((number) => make("th", { scope: "col" }, make("button", {
    class: "cell", "data-turn": number, click: () => page.go({ turn: number }),
    "aria-label": `turn ${number + 1}`, "aria-current": number === page.shown.turn ? "true" : null,
  }, String(number + 1))));
  const cell = (name, event, number) => {
    const [sign, meaning] = EVENTS[event] ?? ["", "is not there"];
    return make("td", { class: event, title: `turn ${number + 1}: ${name} ${meaning}` }, sign);
  };
  const body = rows.map(([name, events]) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, name),
    events.map((event, at) => cell(name, event, numbers[at]))));
  const table = make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "turn"), head)),
    make("tbody", {}, body));
  return make("section", { class: "strip", "aria-label": "Accepted answers by turn" },
    make("div", { class: "scroll", tabindex: 0 }, table));
}

function stripLegend(facts, found, rows, said) {
  if (!found) return make("p", { class: "muted" }, nothingFound(facts, said));
  const answers = (count) => `${whole(count)} other accepted answer${count === 1 ? "" : "s"}`;
  const others = facts - found;
  return make("p", { class: "legend" }, Object.entries(EVENTS).map(([name, [sign, meaning]]) =>
    make("span", {}, make("span", { class: `key ${name}` }, sign), ` ${meaning}`)),
  rows < found ? make("span", {}, `${answers(found - rows)} would not fit here; the turns tell of them`) : null,
  others ? make("span", {}, `${answers(others)} stand${others === 1 ? "s" : ""} nowhere${said}`) : null);
}

const nothingFound = (facts, said) => facts
  ? `No accepted answer stands in what was read, remembered or answered${said}.`
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
