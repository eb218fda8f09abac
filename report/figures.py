"""The plots, as PNG.

Invariants:
- a run has the same colour, dash and marker in every plot; the first 21 runs differ without their colours;
- lengths and turns stand on a logarithmic axis of base 2, at the values that were measured;
- every estimate carries its 95% interval; published numbers have none and are grey;
- names never lie on the data: the legend is below, in as many columns as its longest name allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from math import ceil, log2
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..evaluation.results import length_order
from ..evaluation.statistics import Estimate
from ..evaluation.summary import Summary, main_metric_of
from .published import METRIC, Published
from .wording import metric_name, shorten, task_name, unit_of

# Okabe and Ito's palette, told apart by colour-blind readers; its yellow is too pale for a line on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES = ("-", "--", ":")
_MARKERS = ("o", "s", "^")
_GREYS = ("#444444", "#666666", "#808080", "#999999", "#aaaaaa")
_GREY_MARKERS = ("D", "v", "P", "X", "*")
_WIDTH, _DPI, _LINE = 8.0, 150, 0.24


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    """File name without ``.png``."""
    title: str
    caption: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of one panel: estimates by position, or bare numbers where there is no interval."""

    label: str
    style: Mapping[str, Any]
    points: Sequence[tuple[float, float, Estimate | None]]


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    ticks: Mapping[float, str]
    curves: Sequence[Curve]
    scale: str
    """How the y axis runs: percent, log, or from 0."""


@rc_context({"text.parse_math": False})  # a run may be called $x$
def draw(summaries: Sequence[Summary], published: Mapping[str, Sequence[Published]]) -> tuple[Plot, ...]:
    """Every plot that the summaries can fill; ``published`` has the rows to show for each task."""
    styles = _styles(list(dict.fromkeys(s.run for s in summaries)))
    tasks = list(dict.fromkeys(s.task for s in summaries))
    by_task = {task: [s for s in summaries if s.task == task] for task in tasks}
    plots = [_plot("accuracy", "Accuracy by length", "Bars are 95% intervals over questions.",
                   [_by_length(cells, styles, "") for cells in by_task.values()])]
    beside = [_by_length(by_task[task], styles, METRIC, rows) for task, rows in published.items() if rows]
    plots.append(_plot("accuracy_published", "In the published metric, beside published systems",
                       "Grey: published numbers, one run of 128 questions each, without intervals. Colours: these "
                       "runs in the same, lenient metric.", beside))
    for name, title, caption in _COST_PLOTS:
        plots.append(_plot(name, title, caption, [_by_length(c, styles, name) for c in by_task.values()]))
    longest = {task: _longest(cells) for task, cells in by_task.items()}
    for name, title, caption in _TURN_PLOTS:
        plots.append(_plot(name, title, caption, [_by_turn(c, styles, name) for c in longest.values() if c]))
    return tuple(plot for plot in plots if plot)


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


def _styles(runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {
        run: {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
            "marker": _MARKERS[number // len(_COLOURS) % len(_MARKERS)],
        }
        for number, run in enumerate(runs)
    }


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
    for nudge, (run, style) in zip(side_by_side, styles.items(), strict=True):
        found = [(cell, cell.scores.get(metric) or cell.costs.get(metric)) for cell in cells if cell.run == run]
        curves.append(Curve(run, style, [(positions[c.length] * nudge, e.mean, e) for c, e in found if e]))
    for number, row in enumerate(row for row in rows if row.drawn):
        style = {"color": _GREYS[number % 5], "linestyle": "--", "marker": _GREY_MARKERS[number % 5], "zorder": 1}
        known = [(positions[n], value, None) for n, value in row.accuracy.items() if n in positions]
        curves.append(Curve(f"{row.system} (published)", style, known))
    ticks = {position: _tick(length) for length, position in positions.items()}
    scale = "log" if metric in ("turns", "seconds") else "percent"
    return Panel(task_name(cells[0].task), unit_of(cells), metric_name(metric), ticks, curves, scale)


def _side_by_side(runs: int, positions: Sequence[float]) -> list[float]:
    """Factors that set the runs of one length beside each other, so that their bars do not hide each other."""
    gap = min((log2(b / a) for a, b in pairwise(positions)), default=1.0)
    width = min(0.4, 0.05 * runs) * gap
    return [2 ** (width * (number / max(1, runs - 1) - 0.5)) if runs > 1 else 1.0 for number in range(runs)]


def _by_turn(cells: Sequence[Summary], styles: Mapping[str, Mapping[str, Any]], what: str) -> Panel:
    chosen = {cell.run: cell for cell in cells}
    curves, ticks = [], {1.0: "1"}
    for run, style in styles.items():
        turns = chosen[run].turns if run in chosen else ()
        ticks |= {2.0**n: t.name.removeprefix("turn_").replace("-", "–") for n, t in enumerate(turns)}
        points = [(2.0**n, t.tokens if what == "memory_tokens" else t.gold) for n, t in enumerate(turns)]
        curves.append(Curve(run, style, [(at, e.mean, e) for at, e in points if e]))
    title = f"{task_name(cells[0].task)}, {cells[0].length} {unit_of(cells)}"
    label = "memory tokens" if what == "memory_tokens" else "memories with the answer"
    return Panel(title, "turn", label, ticks, curves, "0" if what == "memory_tokens" else "percent")


def _longest(cells: Sequence[Summary]) -> list[Summary]:
    """The cells of the longest length for which as many runs as possible have memories."""
    lengths = sorted({cell.length for cell in cells if cell.turns}, key=length_order)
    with_memories = {n: [c for c in cells if c.length == n and c.turns] for n in lengths}
    return max(reversed(with_memories.values()), key=len, default=[])


def _plot(name: str, title: str, caption: str, panels: Sequence[Panel]) -> Plot | None:
    panels = [panel for panel in panels if any(curve.points for curve in panel.curves)]
    if not panels:
        return None
    columns = min(len(panels), 3)
    lines = ceil(len(panels) / columns)
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves if curve.points))
    legend_columns = max(1, min(3, int(_WIDTH * 12.5) // (max(map(len, map(shorten, labels))) + 9)))
    legend_lines = ceil(len(labels) / legend_columns)
    panel_height = 3.9 if columns == 1 else 2.9
    height = panel_height * lines + _LINE * legend_lines + 0.2
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    handles: dict[str, Artist] = {}
    for axis, panel in zip(axes, panels, strict=False):
        handles |= _fill(axis, panel, wide=columns == 1)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.legend(list(handles.values()), [shorten(label) for label in handles], loc="outside lower center",
                  ncols=legend_columns, frameon=False, fontsize=9, handlelength=3)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return Plot(name, title, caption, content.getvalue())


def _fill(axis: Axes, panel: Panel, wide: bool) -> dict[str, Artist]:
    handles: dict[str, Artist] = {}
    crowded = len(panel.curves) > 8
    for curve in panel.curves:
        if not curve.points:
            continue
        x, y, estimates = zip(*curve.points, strict=True)
        (line,) = axis.plot(x, y, linewidth=1.6, markersize=5 if wide else 4, **curve.style)
        handles[curve.label] = line
        bars = [(at, e) for at, e in zip(x, estimates, strict=True) if e]
        if bars:
            axis.vlines([at for at, _ in bars], [e.low for _, e in bars], [e.high for _, e in bars],
                        color=line.get_color(), linewidth=1.1, alpha=0.35 if crowded else 0.8)
    axis.set_title(panel.title, fontsize=10 if wide else 9, loc="left")
    axis.set_xlabel(panel.x_label, fontsize=10 if wide else 8)
    axis.set_ylabel(panel.y_label, fontsize=10 if wide else 8)
    axis.set_xscale("log", base=2)
    _limits(axis, panel)
    axis.tick_params(labelsize=9 if wide else 7)
    axis.grid(True, color="#e3e3e3", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    return handles


def _limits(axis: Axes, panel: Panel) -> None:
    axis.set_xticks(list(panel.ticks), list(panel.ticks.values()))
    axis.xaxis.set_minor_locator(NullLocator())
    across = [*panel.ticks, *(x for curve in panel.curves for x, _, _ in curve.points)]
    axis.set_xlim(min(across) / 2**0.3, max(across) * 2**0.3)
    if panel.scale == "percent":
        axis.set_ylim(-3, 103)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
        return
    values = [y for curve in panel.curves for _, y, _ in curve.points]
    if panel.scale == "log" and min(values) > 0:
        axis.set_yscale("log")
        axis.set_ylim(min(values) / 1.6, max(values) * 1.6)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _tick(length: str) -> str:
    number = int(length) if length.isdecimal() else 0
    if number >= 1024 and number % 1024 == 0:
        return f"{number // 1024}K"
    return length
