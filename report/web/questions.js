// The table of questions: filtered, sorted and drawn a part at a time. Texts become text nodes, never markup;
// characters that would turn what stands beside them are shown as signs.
(() => {
  const PART = 20;
  const data = JSON.parse(document.getElementById("question-data").textContent);
  const section = document.getElementById("questions");
  const [search, file, kind, order] = ["search", "file", "kind", "order"].map((name) => section.querySelector(`[name=${name}]`));
  const body = section.querySelector("tbody");
  const count = section.querySelector("[role=status]");
  const more = section.querySelector(".more");

  for (const row of data.rows) {
    row.means = data.runs.map((_, run) => {
      const found = row.answers[run];
      // In whole tenths, which sums of any order have exactly: means are compared.
      return found ? found.reduce((sum, each) => sum + Math.round(10 * each.score), 0) / (10 * found.length) : null;
    });
    const given = Object.values(row.answers).flat();
    row.failed = given.some((each) => each.failure);
    row.searched = [row.id, row.text, row.golds, ...given.map((each) => each.given)].join("\n").toLowerCase();
    const last = row.means.length - 1;
    const both = last > 0 && row.means[0] !== null && row.means[last] !== null;
    row.change = both ? row.means[last] - row.means[0] : null;
  }

  const known = (row) => row.means.filter((mean) => mean !== null);
  const KINDS = {
    all: () => true,
    wrong: (row) => known(row).some((mean) => mean < 100),
    "all-wrong": (row) => known(row).every((mean) => mean === 0),
    unlike: (row) => new Set(known(row)).size > 1,
    better: (row) => row.change > 0,
    worse: (row) => row.change < 0,
    failed: (row) => row.failed,
  };
  const mean = (row) => known(row).reduce((sum, each) => sum + each, 0) / known(row).length;
  const ORDERS = {
    asked: null,
    lowest: (a, b) => mean(a) - mean(b),
    change: (a, b) => Math.abs(b.change ?? 0) - Math.abs(a.change ?? 0),
  };

  const make = (tag, className, ...children) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...children);
    return element;
  };
  const text = (given, className) => make("bdi", className, given);
  const points = (value) => (Number.isInteger(value) ? value : value.toFixed(1));

  function answer(row, run, each) {
    const standing = each.failure ? "failed" : each.score >= 100 ? "right" : each.score > 0 ? "between" : "wrong";
    const score = make("span", `score ${standing}`, each.failure ? "failed" : `${points(each.score)}%`);
    const line = make("div", "answer", score, " ", text(each.failure || each.given || "(nothing)"));
    const { viewer, kept } = data.runs[run];
    if (viewer && kept.includes(row.file)) {
      const link = make("a", "", "trajectory");
      const at = { length: row.file, question: row.id, sample: each.sample };
      link.href = `${viewer}#${new URLSearchParams(at)}`;
      line.append(" ", link);
    }
    return line;
  }

  function drawn(row) {
    const line = document.createElement("tr");
    const place = make("span", "where", text(row.file), " / ", text(row.id));
    const where = make("td", "", place, text(row.text, "asked"));
    const golds = make("td", "", text(row.golds));
    golds.dataset.name = "accepted";
    line.append(where, golds);
    data.runs.forEach((run, number) => {
      const cell = make("td", "", ...(row.answers[number] ?? []).map((each) => answer(row, number, each)));
      if (!cell.firstChild) {
        cell.className = "none";
        cell.append("–");
      }
      cell.dataset.name = run.label;
      line.append(cell);
    });
    return line;
  }

  let found = [];
  function add() {
    body.append(...found.slice(body.rows.length, body.rows.length + PART).map(drawn));
    more.hidden = body.rows.length >= found.length;
  }
  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = data.rows.filter((row) =>
      (!file.value || row.file === file.value) && KINDS[kind.value](row) && words.every((word) => row.searched.includes(word)));
    if (ORDERS[order.value]) found.sort(ORDERS[order.value]);
    count.textContent = `${found.length.toLocaleString("en")} of ${data.rows.length.toLocaleString("en")} questions`;
    body.replaceChildren();
    add();
  }
  for (const control of [search, file, kind, order]) control.addEventListener("input", show);
  more.addEventListener("click", add);
  show();
})();
