"""The tables: one description of each, written as Markdown or as HTML by the page; and the CSV files.

Invariants:
- published rows say that they are, and stand only in the table of the published metric;
- a number that is not known is a dash in a table and an empty field in the CSV, never 0;
- the CSV has full precision and one row per run, task and length; the tables round.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ..evaluation.results import length_order
from ..evaluation.statistics import Estimate
from ..evaluation.summary import (
    COSTS,
    Difference,
    Summary,
    agent_counts,
    count_names,
    main_metric_of,
    score_names,
)
from ..evaluation.tables import pass_sizes_of, percent
from ..system.text import markdown_cell, markdown_table
from .published import METRIC, QUESTIONS, Published, PublishedComparison
from .wording import metric_name, number, shorten, task_name, unit_of, with_interval

HEADLINE = "Each run"
_OTHER = " *"
"""Marks a number of other data than the first run's."""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: frozenset[str] = frozenset(
        {"run", "model", "checkpoint", "system", "task", "metric", "source", "note", "reading", "to know"}
    )
    """The columns of words; all others are numbers."""
    marked: frozenset[int] = frozenset()
    """Rows that are published numbers."""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.header) for row in self.rows), self.title


def headline_table(summaries: Sequence[Summary], models: Mapping[str, tuple[str, str]]) -> Table:
    """One row per run and task: its main metric, averaged over its lengths; ``models`` has each run's model and
    checkpoint."""
    grouped: dict[tuple[str, str], list[Summary]] = defaultdict(list)
    for s in summaries:
        grouped[s.run, s.task].append(s)
    header = ("run", "model", "checkpoint", "task", "metric", "lengths", "mean of lengths", "shortest", "longest",
              "failed", "missing", "not read")
    rows = tuple(
        _headline(cells, models[run], metric)
        for (run, _), cells in grouped.items() if (metric := main_metric_of(cells))
    )
    return _without_task_column(Table(HEADLINE, header, rows, "Percent, with 95% intervals over questions."))


def _headline(cells: Sequence[Summary], model: tuple[str, str], metric: str) -> tuple[str, ...]:
    scores = [(cell.length, cell.scores[metric]) for cell in cells if metric in cell.scores]
    return (
        cells[0].run, *model, task_name(cells[0].task), metric_name(metric), str(len(scores)),
        f"{fmean(score.mean for _, score in scores):.1f}",
        *(f"{with_interval(score)}\nat {length}" for length, score in (scores[0], scores[-1])),
        str(sum(cell.failed for cell in cells)), str(sum(cell.missing for cell in cells)),
        percent(max((cell.not_read for cell in cells if cell.not_read), key=lambda share: share.mean, default=None)),
    )


def published_comparison_tables(comparisons: Sequence[PublishedComparison]) -> list[Table]:
    """One table per dataset and set of shared lengths: a row per published system, a column per run."""
    grouped: dict[tuple[str, tuple[str, ...]], list[PublishedComparison]] = defaultdict(list)
    for c in comparisons:
        grouped[c.task, c.lengths].append(c)
    return [_published_comparison_table(lengths, group) for (_, lengths), group in grouped.items()]


def _published_comparison_table(lengths: tuple[str, ...], group: Sequence[PublishedComparison]) -> Table:
    by_run = {c.run: c for c in group}
    cells = {(c.published.system, c.run): f"{c.mine - c.theirs:+z.1f} {c.verdict}" for c in group}
    theirs = {c.published.system: c.theirs for c in group}
    rows = [("this report", "", *(f"{c.mine:.1f} ± {c.half:.1f}" for c in by_run.values()))]
    rows += [
        (f"{system} (published)", f"{mean:.1f}", *(cells.get((system, run), "–") for run in by_run))
        for system, mean in sorted(theirs.items(), key=lambda item: -item[1])
    ]
    note = (f"Mean over {_span(lengths)} in {METRIC}, percent; below, each run minus the published system. "
            "Above and below: more than the 95% intervals of both sides explain; level: not more.")
    header = ("system", "published", *map(shorten, by_run))
    title = f"Beside systems published on {group[0].published.dataset}"
    return Table(title, header, tuple(rows), note, marked=_last(rows, len(rows) - 1))


def accuracy_table(cells: Sequence[Summary], metric: str, published: Sequence[Published] = ()) -> Table:
    """One row per run, one column per length; published rows below."""
    lengths = sorted({cell.length for cell in cells}, key=length_order)
    base = {cell.length: cell.data for cell in reversed(cells)}
    scores = {
        (cell.run, cell.length): with_interval(cell.scores.get(metric)) + _OTHER * (cell.data != base[cell.length])
        for cell in cells
    }
    shown = [row for row in published if any(length in row.accuracy for length in lengths)]
    rows = [
        (run, *(scores.get((run, length), "–") for length in lengths))
        for run in dict.fromkeys(cell.run for cell in cells)
    ]
    rows += [
        (f"{row.system} (published)",
         *(f"{row.accuracy[length]:.1f}" if length in row.accuracy else "–" for length in lengths))
        for row in shown
    ]
    title = f"{task_name(cells[0].task)}: {metric_name(metric)} by {unit_of(cells)}"
    note = f"Percent. Published rows: one run of {QUESTIONS} questions, no interval." if shown else "Percent."
    if any(cell.data != base[cell.length] for cell in cells):
        note += f"{_OTHER}: other data than the first run of that length has, not comparable with it."
    return Table(title, ("system", *lengths), tuple(rows), note, marked=_last(rows, len(shown)))


def sources_table(published: Sequence[Published]) -> Table:
    rows = [(f"{p.system} (published)", p.source, p.note or "–") for p in published]
    title = f"Sources of the numbers on {published[0].dataset}"
    return Table(title, ("system", "source", "note"), tuple(rows), marked=_last(rows, len(rows)))


def difference_table(base: str, differences: Sequence[tuple[str, Difference]]) -> Table | None:
    """One row per difference of a run, which is named beside it, from the run ``base``."""
    if not differences:
        return None
    rows = tuple(
        (run, task_name(d.task), d.length, metric_name(d.metric), str(d.found.difference.n),
         f"{d.found.first:.1f}", f"{d.found.second:.1f}", _signed(d.found.difference),
         d.found.p_text.replace(" (", "\n("), _reading(d.found.difference))
        for run, d in differences
    )
    header = ("run", "task", "length", "metric", "questions", "first", "this", "difference in points", "p", "reading")
    title = f"Against the first run, {base}, question by question"
    note = ("Only where both runs have the same data hash. Interval and p are of the paired difference; each line is "
            "a test of its own, so a few of many are clear by chance. A p at the floor of its test says so.")
    return _without_task_column(Table(title, header, rows, note))


def scores_table(summaries: Sequence[Summary]) -> Table:
    """One row per run, task and length: how many, and every metric."""
    metrics = score_names(summaries)
    header = ("run", "task", "length", "questions", "rows", "failed", "missing", "not read", *metrics)
    rows = tuple(
        (s.run, task_name(s.task), s.length, str(s.questions), str(s.rows), str(s.failed), str(s.missing),
         percent(s.not_read), *(with_interval(s.scores.get(name)) for name in metrics))
        for s in summaries
    )
    return _without_task_column(Table("Every metric", header, rows, "Percent over all rows, failed ones as wrong."))


def pass_table(summaries: Sequence[Summary]) -> Table | None:
    """One row per run, task and length with several answers a question: pass@k by k, and best@k."""
    sizes, shown = pass_sizes_of(summaries), [s for s in summaries if s.passes]
    if not shown:
        return None
    header = ("run", "task", "length", "questions", *(f"pass@{k}" for k in sizes), "best@k")
    rows = tuple(
        (s.run, task_name(s.task), s.length, str(s.questions), *(with_interval(s.passes.get(k)) for k in sizes),
         f"{with_interval(s.best)}\nk={s.samples}" if s.best else "–")
        for s in shown
    )
    note = ("Percent, over all rows, failed ones as wrong. pass@k: the chance that one of k answers is right, "
            "1 - C(n - c, k) / C(n, k) where c of n are (Chen et al. 2021); best@k: of k draws with replacement.")
    return _without_task_column(Table("One of several answers is right", header, rows, note))


def costs_table(summaries: Sequence[Summary]) -> Table:
    """One row per run, task and length: what a question costs."""
    header = ("run", "task", "length", *(name.replace("_", " ") for name in COSTS))
    rows = tuple(
        (s.run, task_name(s.task), s.length, *(number(s.costs.get(name)) for name in COSTS)) for s in summaries
    )
    note = "Means per question over the rows that did not fail. Memory tokens are those of the last memory."
    return _without_task_column(Table("Cost of a question", header, rows, note))


def agent_table(summaries: Sequence[Summary]) -> Table | None:
    """One row per run, task and length: what the agent did with a question's document; None where nobody says."""
    names = [name for name in agent_counts(summaries) if name not in COSTS]
    if not names:
        return None
    header = ("run", "task", "length", *(name.replace("_", " ") for name in names))
    rows = tuple(
        (s.run, task_name(s.task), s.length, *(number(s.costs.get(name), digits=2) for name in names))
        for s in summaries
    )
    note = "Means per question over the rows that did not fail."
    return _without_task_column(Table("What the agent did", header, rows, note))


def markdown(table: Table) -> str:
    lines = markdown_table(table.header, table.rows, table.words)
    note = f"\n{markdown_cell(table.note)}\n" if table.note else ""
    return f"### {markdown_cell(table.title)}\n\n{lines}\n{note}"


def results_csv(summaries: Sequence[Summary], published: Mapping[str, Sequence[Published]]) -> str:
    """Runs, then the published rows that the tables show."""
    metrics = list(dict.fromkeys(name for s in summaries for name in s.scores))
    metrics += [METRIC] * (any(published.values()) and METRIC not in metrics)
    names = [*metrics, *COSTS, *count_names(summaries)]
    names += [f"pass@{k}" for k in pass_sizes_of(summaries)]
    header = ["kind", "run", "source", "task", "length", "data", "questions", "rows", "failed", "missing"]
    header += [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    rows: list[dict[str, object]] = []
    for s in summaries:
        row: dict[str, object] = {
            "kind": "run", "run": s.run, "task": task_name(s.task), "length": s.length, "data": s.data,
            "questions": s.questions, "rows": s.rows, "failed": s.failed, "missing": s.missing,
        }
        passes = {f"pass@{k}": e for k, e in s.passes.items()}
        for name in names:
            if e := s.scores.get(name) or s.costs.get(name) or passes.get(name):
                row |= {name: e.mean, f"{name}_low": e.low, f"{name}_high": e.high}
        rows.append(row)
    for task, systems in published.items():
        rows += [
            {"kind": "published", "run": p.system, "source": p.source, "task": task_name(task), "length": length,
             "questions": QUESTIONS, METRIC: value}
            for p in systems for length, value in p.accuracy.items()
        ]
    return csv_text(header, rows)


def turns_csv(summaries: Sequence[Summary]) -> str:
    """Memory tokens and gold recall by range of turns, for every run, task and length."""
    header = ["run", "task", "length", "turns", *(f"{n}{end}" for n in ("memory_tokens", "gold_percent")
                                                 for end in ("", "_low", "_high"))]
    rows: list[dict[str, object]] = []
    for s in summaries:
        for t in s.turns:
            row: dict[str, object] = {"run": s.run, "task": task_name(s.task), "length": s.length,
                                      "turns": t.name.removeprefix("turn_")}
            for name, e in (("memory_tokens", t.tokens), ("gold_percent", t.gold)):
                row |= {name: e.mean, f"{name}_low": e.low, f"{name}_high": e.high} if e else {}
            rows.append(row)
    return csv_text(header, rows)


def csv_text(header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A line for each row, whose keys are of the header; what a row does not have is empty."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return lines.getvalue()


def _signed(points: Estimate) -> str:
    return f"{points.mean:+z.1f} [{points.low:+z.1f}, {points.high:+z.1f}]"


def _reading(points: Estimate) -> str:
    if points.low > 0:
        return "better"
    return "worse" if points.high < 0 else "no clear difference"


def _without_task_column(table: Table) -> Table:
    """The table without its column of tasks where there is only one."""
    at = table.header.index("task")
    if len({row[at] for row in table.rows}) > 1:
        return table
    rows = tuple(row[:at] + row[at + 1 :] for row in table.rows)
    return replace(table, header=table.header[:at] + table.header[at + 1 :], rows=rows)


def _last(rows: Sequence[object], count: int) -> frozenset[int]:
    return frozenset(range(len(rows) - count, len(rows)))


def _span(lengths: Sequence[str]) -> str:
    first, last = lengths[0], lengths[-1]
    return f"{first} documents" if len(lengths) == 1 else f"{len(lengths)} lengths, {first} to {last} documents,"
