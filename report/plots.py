"""The plots: accuracy, cost and memory of evaluations, and the curves of training runs.

A plot is panels side by side, and below each other in a form for a narrow window. Its SVG is transparent; in the dark
the page turns its colours around.

Invariants:
- runs of one report have the same colour, dash and marker in every plot, and the first 12 differ without colours;
- lines of equal values lie on each other and are all seen: below is a wide one with large markers, above it thinner
  ones, dashed and dotted. Only bars of intervals are set beside each other;
- lengths and turns stand on a logarithmic axis of base 2, at the values that were measured; every estimate carries its
  95% interval; published numbers have none and are grey;
- of training, thin is every rollout; thick the mean of the rollouts around it, over a twentieth of the run, of 501 at
  most. A value that is no number is a gap, which the caption tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from math import ceil, log2
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..evaluation.results import length_order
from .data import Point, TrainingRun, headline_metric
from .published import METRIC, Published
from .tables import metric_name, shorten, unit_of

# Okabe and Ito's palette, told apart by colour-blind readers; its yellow is too pale for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
GRID = "#d8d8d8"
_GREYS = ("#444444", "#666666", "#808080", "#999999", "#aaaaaa")
_STYLE: Any = {"text.parse_math": False, "svg.hashsalt": "mem_agent", "svg.fonttype": "path", "font.size": 9,
               "axes.titlesize": 10, "axes.titlelocation": "left"}  # a run may be called $x$
_WIDE, _NARROW = 8.0, 4.2
_COSTS = (
    ("turns", "Turns by length", "Model calls per question, the answer included; questions that did not fail."),
    ("seconds", "Latency by length",
     "Wall-clock seconds per question, with as many questions at once as the evaluation ran; questions that did not "
     "fail."),
)
_TURNS = (
    ("memory_tokens", "memory_tokens/turn_", "Memory growth",
     "Tokens of the memory after each turn, pooled in doubling ranges of turns.", "memory tokens", "0"),
    ("gold_recall", "gold_in_memory/turn_", "Gold recall by turn",
     "Share of memories in which an accepted answer stands.", "memories with the answer", "percent"),
)
_LEARNING = (
    ("reward", "reward", "auto"), ("mixed_groups", "groups with unlike rewards", "percent"),
    ("gold_in_memory/last", "last memories with the answer", "percent"), ("memory_tokens", "memory tokens", "0"),
    ("turns", "turns", "0"), ("response_tokens", "sampled tokens", "0"),
)
_UPDATES = (
    ("loss", "loss", "auto"), ("kl", "KL to the reference", "auto"), ("entropy", "entropy", "auto"),
    ("grad_norm", "gradient norm", "0"), ("rollout_log_prob_gap", "engine/trainer gap", "0"),
    ("seconds", "seconds a rollout", "0"),
)

Draw = Callable[[Axes], None]


@dataclass(frozen=True, slots=True)
class Plot:
    name: str
    """File name without ``.png``."""
    title: str
    caption: str
    png: bytes
    wide: bytes
    """SVG for a window; ``narrow`` is for a telephone."""
    narrow: bytes


def plot(name: str, title: str, caption: str, panels: Sequence[Draw], height: float = 2.9) -> list[Plot]:
    """One plot of these panels, each ``height`` inches high; none without a panel."""
    if not panels:
        return []
    with rc_context(_STYLE):
        wide, narrow = _figure(panels, _WIDE, min(len(panels), 3), height), _figure(panels, _NARROW, 1, height)
        return [Plot(name, title, caption, _image(wide, "png"), _image(wide, "svg"), _image(narrow, "svg"))]


def _figure(panels: Sequence[Draw], width: float, columns: int, height: float) -> Figure:
    rows = ceil(len(panels) / columns)
    figure = Figure(dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, draw in zip(axes, panels, strict=False):
        draw(axis)
        axis.grid(True, color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    keys = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    letters = int(11 * width)
    longest = max(map(len, keys), default=0)
    key_columns = max(1, min(3, letters // (longest + 9)))
    if keys:
        figure.legend(list(keys.values()), [shorten(label, letters - 6) for label in keys], ncols=key_columns,
                      loc="outside lower center", frameon=False, handlelength=3.5)
    figure.set_size_inches(width, height * rows + 0.24 * ceil(len(keys) / key_columns) + 0.2)
    return figure


def _image(figure: Figure, form: str) -> bytes:
    content = BytesIO()
    FigureCanvasAgg(figure)
    nothing = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}[form]
    figure.savefig(content, format=form, metadata=nothing, transparent=form == "svg")
    # Comments of a drawing hold names as they are, and XML has no control characters.
    return content.getvalue() if form == "png" else re.sub(rb"<!--.*?-->", b"", content.getvalue(), flags=re.DOTALL)


def line_style(number: int) -> dict[str, Any]:
    """How the run of this number is drawn in every plot."""
    kind, thinner = number % 3, 0.7 ** (number // 3 % 3)
    dashes: Sequence[Any] = ("-", (0, (4, 2.5)), (0, (1, 1.6)))
    return {
        "color": COLOURS[number % len(COLOURS)], "linestyle": dashes[kind], "marker": "os^D"[number % 4],
        "linewidth": (3.6, 2.2, 1.2)[kind] * thinner, "markersize": (9.0, 6.0, 3.4)[kind] * thinner,
        "zorder": 3 + 0.1 * kind + 0.01 * (number // 3),
    }


def _up(axis: Axes, scale: str, label: str = "") -> None:
    """How the y axis runs: percent, log, from 0, or auto."""
    axis.set_ylabel(shorten(label))
    if scale == "percent":
        axis.set_ylim(-3, 103)
    elif scale == "log":
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
    elif scale == "0":
        axis.set_ylim(bottom=0)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" + "%" * (scale == "percent")))


# --- evaluations --------------------------------------------------------------------------------------------------


def evaluation_plots(frame: pd.DataFrame, beside: Mapping[str, Sequence[Published]]) -> list[Plot]:
    """Every plot that the lines of runs can fill."""
    runs = list(frame["run"].unique())
    tasks = dict(tuple(frame[frame["family"] != "average"].groupby("task", sort=False)))
    judged = {task: metric for task, part in tasks.items() if (metric := headline_metric(part))}
    plots = plot("accuracy", "Accuracy by length", "Bars are 95% intervals over questions.",
                 [_by_length(tasks[task], metric, "percent", runs) for task, metric in judged.items()])
    plots += plot("accuracy_published", "In the published metric, beside published systems",
                  "Grey: published numbers, one run of 128 questions each, without intervals. Colours: these runs in "
                  "the same, lenient metric.",
                  [_by_length(tasks[task], METRIC, "percent", runs, rows) for task, rows in beside.items()
                   if task in tasks])
    for name, title, caption in _COSTS:
        plots += plot(name, title, caption, [_by_length(part, name, "log", runs) for part in tasks.values()
                                             if (part["metric"] == name).any()])
    for name, metric, title, caption, label, scale in _TURNS:
        shown = [(part, part[part["metric"].str.startswith(metric)]) for part in tasks.values()]
        plots += plot(name, title, caption,
                      [_by_turn(found, unit_of(part), label, scale, runs) for part, found in shown if len(found)])
    return plots


def _by_length(
    part: pd.DataFrame, metric: str, scale: str, runs: Sequence[str], beside: Sequence[Published] = ()
) -> Draw:
    """A metric or a cost of one task by length; names stand one doubling apart."""
    lengths = sorted(part["length"].unique(), key=length_order)
    numbers = all(length.isdecimal() and int(length) for length in lengths)
    positions = {length: float(length) if numbers else 2.0**at for at, length in enumerate(lengths)}
    names = [f"{int(name) // 1024}K" if name.isdecimal() and int(name) % 1024 == 0 else name for name in lengths]
    found = part[part["metric"] == metric]
    drawn = _runs(found, found["length"].map(positions), runs, dict(zip(positions.values(), names, strict=True)))

    def draw(axis: Axes) -> None:
        drawn(axis)
        for number, row in enumerate(row for row in beside if row.drawn):
            known = [(positions[length], value) for length, value in row.accuracy.items() if length in positions]
            axis.plot(*zip(*known, strict=True), label=row.label, color=_GREYS[number % 5],
                      marker="DvPX*"[number % 5], linestyle="--", linewidth=1.4, markersize=5, zorder=2)
        axis.set(title=shorten(part["task"].iloc[0], 30), xlabel=unit_of(part))
        _up(axis, scale, metric_name(metric))

    return draw


def _by_turn(part: pd.DataFrame, unit: str, label: str, scale: str, runs: Sequence[str]) -> Draw:
    """At the longest length of a task at which as many runs as possible have memories."""
    runs_at = part.groupby("length")["run"].nunique()
    length = max(sorted(runs_at.index, key=length_order, reverse=True), key=lambda name: runs_at[name])
    part = part[part["length"] == length]
    positions = {metric: 2.0**at for at, metric in enumerate(part["metric"].unique())}
    names = {at: metric.partition("turn_")[2].replace("-", "–") for metric, at in positions.items()}
    drawn = _runs(part, part["metric"].map(positions), runs, names)

    def draw(axis: Axes) -> None:
        drawn(axis)
        axis.set(title=shorten(f"{part['task'].iloc[0]}, {length} {unit}", 30), xlabel="turn")
        _up(axis, scale, label)

    return draw


def _runs(part: pd.DataFrame, x: pd.Series, runs: Sequence[str], names: Mapping[float, str]) -> Draw:
    """A line for each run on a logarithmic axis of base 2; ``names`` of its places, at most 16 are written."""
    gap = min((1.0, *(log2(b / a) for a, b in pairwise(names))))
    width = min(0.4, 0.05 * len(runs)) * gap

    def draw(axis: Axes) -> None:
        for number, run in enumerate(runs):
            own, style = part[part["run"] == run], line_style(number)
            if len(own):
                aside = 2 ** (width * (number / max(1, len(runs) - 1) - 0.5))
                at = x[own.index]
                axis.plot(at, own["mean"], label=run, **style)
                axis.vlines(at * aside, own["low"], own["high"], color=style["color"], linewidth=1.2, alpha=0.7)
        axis.set_xscale("log", base=2)
        step = ceil(len(names) / 16)
        axis.set_xticks(list(names)[::step], [shorten(name, 12) for name in names.values()][::step])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlim(min(names) / 2**0.3, max(names) * 2**0.3)

    return draw


# --- training -----------------------------------------------------------------------------------------------------


def training_plots(runs: Sequence[TrainingRun], points: Sequence[Sequence[Point]]) -> list[Plot]:
    """Every plot that the runs, with their evaluations, can fill."""
    windows = [_window(run) for run in runs]
    smoothed = ""
    if max(windows, default=1) > 1:
        smoothed = f"Thin: each rollout; thick: the mean of {max(windows)} around it. "
    plots: list[Plot] = []
    if any(points) or any(run.numbers("accuracy").notna().any() for run in runs):
        caption = (f"Lines: the questions of each rollout. {smoothed}Marks: evaluations, with 95% intervals over "
                   "questions where the answers are there.")
        plots = plot("training", "Right answers while training", caption + _gaps(runs, [("accuracy", "accuracy", "")]),
                     [lambda axis: _accuracy(axis, runs, points)], 3.9)
    for name, title, numbers in (("training_signal", "What was earned, and what the agent did", _LEARNING),
                                 ("training_updates", "Updates", _UPDATES)):
        shown = [each for each in numbers if any(run.numbers(each[0]).notna().any() for run in runs)]
        caption = (smoothed or "Each rollout.").strip() + _gaps(runs, shown)
        plots += plot(name, title, caption, [_curves(runs, *each) for each in shown])
    return plots


def _gaps(runs: Sequence[TrainingRun], numbers: Sequence[tuple[str, str, str]]) -> str:
    names = [title for name, title, _ in numbers if any(run.numbers(name).isna().any() for run in runs)]
    return f" Gaps in {', '.join(names)}: values that are no numbers, or beyond 1e+30." if names else ""


def _curves(runs: Sequence[TrainingRun], name: str, title: str, scale: str) -> Draw:
    def draw(axis: Axes) -> None:
        for number, run in enumerate(runs):
            _smoothed(axis, run, number, name, 100.0 if scale == "percent" else 1.0,
                      run.label if len(runs) > 1 else None)
        axis.set(title=title, xlabel="rollouts")
        _up(axis, scale)

    return draw


def _accuracy(axis: Axes, runs: Sequence[TrainingRun], found: Sequence[Sequence[Point]]) -> None:
    """Accuracy of rollouts, and hollow marks for the first, the middle and the last of the evaluation files."""
    lengths = list(dict.fromkeys(point.length for points in found for point in points))
    if len(lengths) > 4:
        lengths = [lengths[0], lengths[len(lengths) // 2], lengths[-1]]
    for number, (run, points) in enumerate(zip(runs, found, strict=True)):
        _smoothed(axis, run, number, "accuracy", 100.0, run.label)
        for place, length in enumerate(lengths):
            own = [point for point in points if point.length == length]
            style = line_style(place)
            style |= {"color": COLOURS[(number + (len(runs) == 1) * (place + 1)) % len(COLOURS)], "zorder": 4 + place,
                      "linewidth": 0.6 * style["linewidth"], "markerfacecolor": "none"}
            at = [point.rollouts for point in own]
            axis.plot(at, [point.score.mean for point in own], **style,
                      label=f"evaluation {length}" + f", {run.label}" * (len(runs) > 1) if own else None)
            axis.vlines(at, [point.score.low for point in own], [point.score.high for point in own],
                        color=style["color"], linewidth=1.2, alpha=0.7)
    metric = next((metric_name(point.metric) for points in found for point in points), "")
    axis.set_xlabel("rollouts")
    _up(axis, "percent", f"rollouts: accuracy; marks: {metric}" if metric else "accuracy")


def _smoothed(axis: Axes, run: TrainingRun, number: int, name: str, factor: float, label: str | None) -> None:
    values = factor * run.numbers(name)
    window, colour = _window(run), line_style(number)["color"]
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if window > 1:
        axis.plot(values.index, values, color=colour, linewidth=0.6, alpha=0.35, zorder=2)
    # A value between two gaps has no line: its dot shows it.
    means = values.rolling(window, center=True, min_periods=1).mean().where(values.notna())
    axis.plot(means.index, means, color=colour, linestyle=line_style(number)["linestyle"], linewidth=2.2, marker=".",
              markersize=2.5, label=label)


def _window(run: TrainingRun) -> int:
    """An odd number of rollouts, a twentieth of the run, at most 501; 1 in a run of few."""
    return min(2 * (len(run.rollouts) // 40) + 1, 501)
