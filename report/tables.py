"""The tables: one description of each, written as Markdown or as HTML by the page. Most are pivots of the frame.

Invariants: published rows say that they are, and stand only in tables of the published metric; a number that is not
known is a dash, never 0.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan
from pathlib import PurePath
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from ..evaluation.results import METRICS, Results, length_order
from ..evaluation.summary import COSTS, Difference
from ..memsifter.table import WORDS as SIFTER_WORDS
from ..rewards.qa_metrics import FIRST_GOLD
from ..system.text import markdown_cell, markdown_table
from .data import COUNTS, RULER, TEN, Point, TrainingRun, headline_metric, task_name
from .published import METRIC, QUESTIONS, Published, verdict

HEADLINE = "Each run"
WORDS = frozenset({"run", "model", "checkpoint", "system", "task", "metric", "source", "note", "reading", "file",
                   "to know", *SIFTER_WORDS})
"""The columns of words; all others are numbers."""
_METRICS = {"em": "exact match", "f1": "F1", "ruler": "RULER score", FIRST_GOLD: "first gold (MemAgent's qa_1)",
            METRIC: f"{METRIC} (published metric)"}
_OTHER = " *"
"""Marks a number of other data than the first run's."""
_PROGRESS = {"reward": 3, "accuracy": 3, "mixed_groups": 2, "gold_in_memory/last": 2, "memory_tokens": 1, "turns": 1,
             "loss": 5, "kl": 4, "grad_norm": 3, "seconds": 1}
"""Numbers of a training run, and their decimals."""


class Table(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        note = f"\n{markdown_cell(self.note)}\n" if self.note else ""
        return f"### {markdown_cell(self.title)}\n\n{markdown_table(self.header, self.rows, WORDS)}\n{note}"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> list[Table]:
    """The table, without its column of tasks where there is only one; none without a row."""
    if "task" in header and len({row[header.index("task")] for row in rows}) <= 1:
        at = header.index("task")
        header, *rows = [(*row[:at], *row[at + 1 :]) for row in (header, *rows)]
    return [Table(title, header, rows, note)] if rows else []


def metric_name(metric: str) -> str:
    return _METRICS.get(metric, metric)


def with_interval(score: Any) -> str:
    """The mean, and its interval on a line of its own where there is one; ``score`` has mean, low and high."""
    return f"{score.mean:.1f}" + ("" if isnan(score.low) else f"\n[{score.low:.1f}, {score.high:.1f}]")


def cost(number: Any, digits: int = 1) -> str:
    """A mean, with decimals only where it is small."""
    return f"{number.mean:,.{digits}f}" if number.mean < 100 else f"{number.mean:,.0f}"


def shorten(name: str, most: int = 60) -> str:
    """The name, or its two ends where it is too long."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 + 1 :]}"


def unit_of(part: pd.DataFrame) -> str:
    """What a length counts: tokens where documents have about as many, else documents; where names are none, files."""
    named = part[part["length"].str.isdecimal()]
    if named.empty:
        return "file"
    tokens = named[named["metric"] == "document_tokens"]
    ratio = (tokens["mean"] / tokens["length"].astype(float)).mean()
    return "tokens" if part["task"].iloc[0] == RULER or ratio < 4 else "documents"


def model_title(result: Results) -> tuple[str, str]:
    """The model and the checkpoint of it that was evaluated; the hash of the weights where nobody says a name."""
    run, path = result.run, PurePath(result.run.model_name)
    made_in_run = re.fullmatch(r"(?:during|after)-(iter_[0-9]{7,18})", result.folder.name)
    if made_in_run and result.folder.parent.name == "eval":
        return result.folder.parent.parent.name, made_in_run[1]
    hub = next((part for part in path.parts if part.startswith("models--")), "")  # a downloaded model's folder
    if hub:
        return hub.removeprefix("models--").replace("--", "/", 1), "–"
    if run.checkpoint is None:
        return path.name or run.model[:10], "–"
    above = path.parent.parent if path.parent.name == "hf" else path.parent
    return above.name or run.model[:10], path.name


def pivot(
    title: str, part: pd.DataFrame, index: Sequence[str], column: str, cell: Callable[[Any], str] = with_interval,
    columns: Iterable[str] = (), note: str = "",
) -> list[Table]:
    """A row for each value of ``index``, a column for each of ``column``, in the order of ``columns`` and then as they
    come."""
    cells: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for line in part.itertuples():
        cells[tuple(getattr(line, name) for name in index)][getattr(line, column)] = cell(line)
    there = set(part[column])
    names = [name for name in dict.fromkeys([*columns, *part[column]]) if name in there]
    rows = [(*key, *(found.get(name, "–") for name in names)) for key, found in cells.items()]
    return table(title, (*index, *names), rows, note)


def evaluation_tables(
    frame: pd.DataFrame, models: Mapping[str, tuple[str, str]], beside: Mapping[str, Sequence[Published]]
) -> dict[str, list[Table]]:
    """By section of the page; ``frame`` has published lines, too."""
    runs = frame[frame["kind"] == "run"]
    count, score, costs, passes, averages = (
        runs[runs["family"] == name] for name in ("count", "score", "cost", "pass", "average"))
    usual, where = costs["metric"].isin(COSTS), ("run", "task", "length")
    tables: dict[str, list[Table]] = {"standing": headline_table(runs, models), "published": []}
    tables["accuracy"] = pivot("RULER, task by task", averages, where, "metric", note=_OF_RULER)
    for task, part in runs.groupby("task", sort=False):
        unit, rows = unit_of(part), beside.get(task, ())
        tables["accuracy"] += accuracy_table(part[_is_score(part, headline_metric(part))], unit)
        if rows:
            both = frame[_is_score(frame, rows[0].metric) & (frame["task"] == task)]
            tables["standing"] += standing_table(part, rows)
            tables["published"] += accuracy_table(both, unit)
            tables["published"] += table(f"Sources of the numbers on {rows[0].dataset}", ("system", "source", "note"),
                                         [(row.label, row.source, row.note) for row in rows])
    tables["accuracy"] += pivot("One of several answers is right", passes, where, "metric", note=_PASS)
    tables["paired"] = pivot("Every metric", pd.concat([count, score]), where, "metric",
                             _count_or_score, (*COUNTS, "not_read", *METRICS),
                             "Percent over all rows, failed ones as wrong.")
    tables["cost"] = pivot("Cost of a question", costs[usual], where, "metric", cost, COSTS,
                           f"{_PER_QUESTION} Memory tokens are those of the last memory.")
    tables["cost"] += pivot("What the agent did", costs[~usual & ~costs["metric"].str.endswith("_tokens")], where,
                            "metric", lambda number: cost(number, 2), note=_PER_QUESTION)
    return tables


def _is_score(part: pd.DataFrame, metric: str | None) -> pd.Series:
    return part["family"].isin(("score", "average")) & (part["metric"] == metric)


_PER_QUESTION = "Means per question over the rows that did not fail."
_OF_RULER = (f"Percent. {TEN}: the average of the eight needle tasks, vt and fwe. qa_1 is by RULER's rule, and "
             "against its first gold as MemAgent scores it.")
_PASS = ("Percent, over all rows, failed ones as wrong. pass@k: the chance that one of k answers is right, "
         "1 - C(n - c, k) / C(n, k) where c of n are (Chen et al. 2021); best@k: of k draws with replacement.")


def _count_or_score(line: Any) -> str:
    if line.family == "score":
        return with_interval(line)
    return f"{line.mean:.1f}%" if line.metric == "not_read" else f"{line.mean:.0f}"


def headline_table(runs: pd.DataFrame, models: Mapping[str, tuple[str, str]]) -> list[Table]:
    """One row per run and task: its main metric, averaged over its lengths; ``models`` has each run's model and
    checkpoint."""
    rows = []
    for (run, task), part in runs.groupby(["run", "task"], sort=False):
        if metric := headline_metric(part):
            scores = list(part[_is_score(part, metric)].itertuples())
            counts = part[part["family"] == "count"].groupby("metric")["mean"].agg(["sum", "max"])
            rows.append((
                run, *models[run], task, metric_name(metric), str(len(scores)),
                f"{fmean(score.mean for score in scores):.1f}",
                *(f"{with_interval(score)}\nat {score.length}" for score in (scores[0], scores[-1])),
                *(f"{counts['sum'][name]:.0f}" for name in ("failed", "missing")),
                f"{counts['max']['not_read']:.1f}%" if "not_read" in counts.index else "–",
            ))
    header = ("run", "model", "checkpoint", "task", "metric", "lengths", "mean of lengths", "shortest", "longest",
              "failed", "missing", "not read")
    return table(HEADLINE, header, rows, "Percent, with 95% intervals over questions.")


def accuracy_table(part: pd.DataFrame, unit: str) -> list[Table]:
    """Of one task and metric: a row for each run, and below them for each published system; a column per length."""
    ours = part[part["kind"] == "run"]
    if ours.empty:
        return []
    first = ours.drop_duplicates("length").set_index("length")["data"]
    other = (part["kind"] == "run") & (part["data"] != part["length"].map(first))
    note = "Percent."
    if len(ours) < len(part):
        note += f" Published rows: one run of {QUESTIONS} questions, no interval."
    if other.any():
        note += f"{_OTHER}: other data than the first run of that length has, not comparable with it."
    part = part.assign(system=part["run"], other=other)[part["length"].isin(first.index)]
    title = f"{ours['task'].iloc[0]}: {metric_name(ours['metric'].iloc[0])} by {unit}"
    return pivot(title, part, ["system"], "length", lambda line: with_interval(line) + _OTHER * line.other,
                 sorted(first.index, key=length_order), note)


def standing_table(part: pd.DataFrame, beside: Sequence[Published]) -> list[Table]:
    """A row for each run of a task and each system that shares lengths with it, both averaged over those."""
    rows = []
    for run, own in part[part["metric"] == METRIC].groupby("run", sort=False):
        for row in sorted(beside, key=lambda row: -fmean(row.accuracy.values())):
            shared = own[own["length"].isin(row.accuracy)]
            if len(shared):
                # Lengths may ask the same questions, so their average is as sure as its least sure length.
                mine, half = shared["mean"].mean(), ((shared["high"] - shared["low"]) / 2).max()
                theirs = shared["length"].map(row.accuracy).mean()
                lengths = shared["length"].iloc[[0, -1]].unique()
                rows.append((row.label, run, " to ".join(lengths), f"{theirs:.1f}", f"{mine:.1f} ± {half:.1f}",
                             f"{mine - theirs:+z.1f}", verdict(mine, half, theirs)))
    header = ("system", "run", "documents", "published", "this report", "difference", "reading")
    note = (f"Means over the lengths of both, in {METRIC}, percent. Above and below: more than the 95% intervals of "
            "both sides explain; level: not more.")
    return table(f"Beside systems published on {beside[0].dataset}", header, rows, note)


def reading_of(points: Any) -> str:
    return "better" if points.low > 0 else "worse" if points.high < 0 else "no clear difference"


def difference_table(base: str, differences: Sequence[tuple[str, Difference]]) -> list[Table]:
    """One row per difference of a run, which is named beside it, from the run ``base``."""
    rows = []
    for run, each in differences:
        points = each.found.difference
        rows.append((
            run, task_name(each.task), each.length, metric_name(each.metric), str(points.n), f"{each.found.first:.1f}",
            f"{each.found.second:.1f}", f"{points.mean:+z.1f} [{points.low:+z.1f}, {points.high:+z.1f}]",
            each.found.p_text.replace(" (", "\n("), reading_of(points)))
    header = ("run", "task", "length", "metric", "questions", "first", "this", "difference in points", "p", "reading")
    note = ("Only where both runs have the same data hash. Interval and p are of the paired difference; each line is "
            "a test of its own, so a few of many are clear by chance. A p at the floor of its test says so.")
    return table(f"Against the first run, {base}, question by question", header, rows, note)


def training_tables(runs: Sequence[TrainingRun], points: Sequence[Sequence[Point]]) -> list[Table]:
    """Training runs in numbers: how their means moved, and the evaluations of their checkpoints."""
    names = [name for name in _PROGRESS if any(run.first_and_last(name) for run in runs)]
    progress = []
    for run in runs:
        ends = [(run.first_and_last(name), _PROGRESS[name]) for name in names]
        cells = (f"{each[0]:.{digits}f}\n{each[1]:.{digits}f}" if each else "–" for each, digits in ends)
        progress.append((run.label, str(run.rollouts.index.max()), *cells))
    note = "Means of the first rollouts, below them of the last: ten of each, or half of a run of fewer than twenty."
    header = ("run", "rollouts", *(name.replace("_", " ") for name in names))
    evaluated = [(run.label, str(point.rollouts), point.length, metric_name(point.metric), with_interval(point.score))
                 for run, found in zip(runs, points, strict=True) for point in found]
    return [
        *table("First and last rollouts", header, progress if names else [], note),
        *table("Evaluated while training, and around it", ("run", "after rollouts", "file", "metric", "percent"),
               evaluated, "95% intervals over questions where the answers are there."),
    ]
