"""The plots of evaluations: accuracy, cost and memory.

Invariants:
- lengths and turns stand on a logarithmic axis of base 2, at the values that were measured;
- every estimate carries its 95% interval; published numbers have none and are grey;
- of a task's lengths the first ``_LENGTHS`` are drawn; the caption says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log2
from typing import Any

from ..evaluation.results import length_order
from ..evaluation.summary import Summary, main_metric_of
from .panels import Curve, Panel, Plot, line_style, plot
from .published import METRIC, Published
from .themes import GREYS
from .wording import metric_name, task_name, unit_of

_GREY_MARKERS = ("D", "v", "P", "X", "*")
_LENGTHS = 64


def draw(summaries: Sequence[Summary], published: Mapping[str, Sequence[Published]]) -> tuple[Plot, ...]:
    """Every plot that the summaries can fill; ``published`` has the rows to show for each task."""
    styles = {run: line_style(number) for number, run in enumerate(dict.fromkeys(s.run for s in summaries))}
    every: dict[str, list[Summary]] = defaultdict(list)
    for s in summaries:
        every[s.task].append(s)
    by_task = {task: _of_first_lengths(cells) for task, cells in every.items()}
    cut = f" Of a task's lengths the first {_LENGTHS} are drawn." * (by_task != every)
    plots = [plot("accuracy", "Accuracy by length", f"Bars are 95% intervals over questions.{cut}",
                  [_by_length(cells, styles, "") for cells in by_task.values()])]
    beside = [_by_length(by_task[task], styles, METRIC, rows) for task, rows in published.items() if rows]
    plots.append(plot("accuracy_published", "In the published metric, beside published systems",
                      "Grey: published numbers, one run of 128 questions each, without intervals. Colours: these "
                      "runs in the same, lenient metric.", beside))
    for name, title, caption in _COST_PLOTS:
        plots.append(plot(name, title, caption + cut, [_by_length(c, styles, name) for c in by_task.values()]))
    longest = {task: _longest(cells) for task, cells in by_task.items()}
    for name, title, caption in _TURN_PLOTS:
        plots.append(plot(name, title, caption, [_by_turn(c, styles, name) for c in longest.values() if c]))
    return tuple(drawn for drawn in plots if drawn)


_COST_PLOTS = (
    ("turns", "Turns by length", "Model calls per question, the answer included; questions that did not fail."),
    ("seconds", "Latency by length",
     "Wall-clock seconds per question, with as many questions at once as the evaluation ran; questions that did not "
     "fail."),
)
_TURN_PLOTS = (
    ("memory_tokens", "Memory growth", "Tokens of the memory after each turn, pooled in doubling ranges of turns."),
    ("gold_recall", "Gold recall by turn", "Share of memories in which an accepted answer stands."),
)


def _of_first_lengths(cells: list[Summary]) -> list[Summary]:
    lengths = sorted({cell.length for cell in cells}, key=length_order)
    shown = {*lengths[:_LENGTHS]}
    return [cell for cell in cells if cell.length in shown]


def _positions(lengths: Sequence[str]) -> dict[str, float]:
    """Where lengths stand: at their numbers, or one doubling apart where some are names."""
    ordered = sorted(set(lengths), key=length_order)
    if all(length.isdecimal() and int(length) > 0 for length in ordered):
        return {length: float(length) for length in ordered}
    return {length: 2.0**number for number, length in enumerate(ordered)}


def _by_length(
    cells: Sequence[Summary], styles: Mapping[str, Mapping[str, Any]], what: str, rows: Sequence[Published] = ()
) -> Panel:
    """A metric or a cost by length; the task's main metric where ``what`` is empty."""
    metric = what or main_metric_of(cells) or ""
    positions = _positions([cell.length for cell in cells])
    side_by_side = _side_by_side(len(styles), sorted(positions.values()))
    curves = []
    for aside, (run, style) in zip(side_by_side, styles.items(), strict=True):
        found = [(cell, cell.scores.get(metric) or cell.costs.get(metric)) for cell in cells if cell.run == run]
        curves.append(Curve(run, style, [(positions[c.length], e.mean, e) for c, e in found if e], aside))
    for number, row in enumerate(row for row in rows if row.drawn):
        style = {"color": GREYS[number % 5], "linestyle": "--", "linewidth": 1.4, "markersize": 5,
                 "marker": _GREY_MARKERS[number % 5], "zorder": 2}
        known = [(positions[n], value, None) for n, value in row.accuracy.items() if n in positions]
        curves.append(Curve(f"{row.system} (published)", style, known))
    ticks = {position: _tick(length) for length, position in positions.items()}
    scale = "log" if metric in ("turns", "seconds") else "percent"
    return Panel(task_name(cells[0].task), unit_of(cells), metric_name(metric), ticks, curves, scale)


def _side_by_side(runs: int, positions: Sequence[float]) -> list[float]:
    """Factors that set the bars of one length beside each other."""
    gap = min((1.0, *(log2(b / a) for a, b in pairwise(positions))))
    width = min(0.4, 0.05 * runs) * gap
    return [2 ** (width * (number / max(1, runs - 1) - 0.5)) if runs > 1 else 1.0 for number in range(runs)]


def _by_turn(cells: Sequence[Summary], styles: Mapping[str, Mapping[str, Any]], what: str) -> Panel:
    chosen = {cell.run: cell for cell in cells}
    curves, ticks = [], {1.0: "1"}
    for aside, (run, style) in zip(_side_by_side(len(styles), ()), styles.items(), strict=True):
        turns = chosen[run].turns if run in chosen else ()
        ticks |= {2.0**n: t.name.removeprefix("turn_").replace("-", "–") for n, t in enumerate(turns)}
        points = [(2.0**n, t.tokens if what == "memory_tokens" else t.gold) for n, t in enumerate(turns)]
        curves.append(Curve(run, style, [(at, e.mean, e) for at, e in points if e], aside))
    title = f"{task_name(cells[0].task)}, {cells[0].length} {unit_of(cells)}"
    label = "memory tokens" if what == "memory_tokens" else "memories with the answer"
    return Panel(title, "turn", label, ticks, curves, "0" if what == "memory_tokens" else "percent")


def _longest(cells: Sequence[Summary]) -> list[Summary]:
    """The cells of the longest length for which as many runs as possible have memories."""
    lengths = sorted({cell.length for cell in cells if cell.turns}, key=length_order)
    with_memories = {n: [c for c in cells if c.length == n and c.turns] for n in lengths}
    return max(reversed(with_memories.values()), key=len, default=[])


def _tick(length: str) -> str:
    number = int(length) if length.isdecimal() else 0
    if number >= 1024 and number % 1024 == 0:
        return f"{number // 1024}K"
    return length
