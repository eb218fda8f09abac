"""The plots: accuracy, cost and memory of evaluations, and the curves of training runs.

A plot is panels side by side, at most three in a row. Its SVG is transparent; in the dark the page turns its colours
around.

Invariants:
- runs of one report have the same colour, dash and marker in every plot, and the first 12 differ without colours;
- lengths and turns are evenly spaced, one doubling apart where they double; every estimate carries its 95% interval,
  beside those of other runs; published numbers have none and are grey;
- of training, thin is every rollout; thick the mean of the rollouts around it, over a twentieth of the run, of 501 at
  most. A value that is no number is a gap, which the caption tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..evaluation.results import length_order
from .data import Point, TrainingRun, headline_metric
from .published import METRIC, Published
from .tables import metric_name, shorten, unit_of

# Okabe and Ito's palette, told apart by colour-blind readers; its yellow is too pale for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_GREYS = ("#444444", "#666666", "#808080", "#999999", "#aaaaaa")
_STYLE: Any = {"text.parse_math": False, "svg.hashsalt": "mem_agent", "svg.fonttype": "path", "font.size": 9,
               "axes.titlesize": 10, "axes.titlelocation": "left", "axes.grid": True, "grid.color": "#d8d8d8",
               "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False}  # a run may be called $x$
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


class Plot(NamedTuple):
    name: str
    """File name without ``.png``."""
    title: str
    caption: str
    png: bytes
    svg: bytes


def plot(name: str, title: str, caption: str, panels: Sequence[Draw], height: float = 2.9) -> list[Plot]:
    """One plot of these panels, each ``height`` inches high; none without a panel."""
    if not panels:
        return []
    with rc_context(_STYLE):
        columns = min(len(panels), 3)
        rows = ceil(len(panels) / columns)
        figure = Figure(dpi=150, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, draw in zip(axes, panels, strict=False):
            draw(axis)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        keys = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        if keys:
            figure.legend(list(keys.values()), [shorten(label, 80) for label in keys],
                          ncols=1 if max(map(len, keys)) > 20 else 3, loc="outside lower center", frameon=False)
        figure.set_size_inches(8.0, height * rows + 0.24 * len(keys) + 0.2)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it holds for both images
        svg = _image(figure, "svg", {"Date": None, "Creator": None})
        # Comments of a drawing hold names as they are.
        return [Plot(name, title, caption, _image(figure, "png", {"Software": None}),
                     re.sub(rb"<!--.*?-->", b"", svg, flags=re.DOTALL))]


def _image(figure: Figure, form: str, metadata: Mapping[str, None]) -> bytes:
    content = BytesIO()
    figure.savefig(content, format=form, metadata=metadata, transparent=form == "svg")
    return content.getvalue()


def line_style(number: int) -> dict[str, Any]:
    """How the run of this number is drawn in every plot."""
    return {"color": COLOURS[number % 7], "linestyle": ("-", "--", ":")[number % 3], "marker": "os^D"[number % 4],
            "markersize": 5, "linewidth": 2}


def bars(scores: Iterable[Any]) -> np.ndarray:
    """How far intervals reach below and above their means; shape (2, scores)."""
    return np.clip([(score.mean - score.low, score.high - score.mean) for score in scores], 0, None).T


def _name(axis: Axes, title: str, xlabel: str, scale: str, ylabel: str = "") -> None:
    """Titles, and how the y axis runs: percent, log, from 0, or auto."""
    axis.set(title=shorten(title, 30), xlabel=xlabel, ylabel=shorten(ylabel))
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
    """A metric or a cost of one task by length."""
    names = {length: f"{int(length) // 1024}K" if length.isdecimal() and int(length) % 1024 == 0 else length
             for length in sorted(part["length"].unique(), key=length_order)}
    return _panel(part[part["metric"] == metric], "length", names, part["task"].iloc[0], unit_of(part), scale,
                  metric_name(metric), runs, beside)


def _by_turn(part: pd.DataFrame, unit: str, label: str, scale: str, runs: Sequence[str]) -> Draw:
    """At the longest length of a task at which as many runs as possible have memories."""
    runs_at = part.groupby("length")["run"].nunique()
    length = max(sorted(runs_at.index, key=length_order, reverse=True), key=lambda name: runs_at[name])
    part = part[part["length"] == length]
    names = {metric: metric.partition("turn_")[2].replace("-", "–") for metric in part["metric"].unique()}
    return _panel(part, "metric", names, f"{part['task'].iloc[0]}, {length} {unit}", "turn", scale, label, runs)


def _panel(
    part: pd.DataFrame, column: str, names: Mapping[str, str], title: str, xlabel: str, scale: str, ylabel: str,
    runs: Sequence[str], beside: Sequence[Published] = (),
) -> Draw:
    """A line for each run over the values of a column, evenly spaced and called by ``names``, of which at most 16 are
    written."""
    places, step = {value: at for at, value in enumerate(names)}, ceil(len(names) / 16)

    def draw(axis: Axes) -> None:
        for number, run in enumerate(runs):
            own = part[part["run"] == run]
            if len(own):
                aside = min(0.04, 0.4 / len(runs)) * (number - (len(runs) - 1) / 2)
                axis.errorbar(own[column].map(places) + aside, own["mean"], bars(own.itertuples()), label=run,
                              elinewidth=1.2, **line_style(number))
        for number, row in enumerate(row for row in beside if row.drawn):
            known = {places[length]: value for length, value in row.accuracy.items() if length in places}
            axis.plot(list(known), list(known.values()), label=row.label, color=_GREYS[number % 5],
                      marker="DvPX*"[number % 5], linestyle="--", linewidth=1.4, markersize=5, zorder=1)
        labels = [shorten(name, 12) for name in names.values()]
        axis.set_xticks(range(0, len(names), step), labels[::step])
        _name(axis, title, xlabel, scale, ylabel)

    return draw


# --- training -----------------------------------------------------------------------------------------------------


def training_plots(runs: Sequence[TrainingRun], points: Sequence[Sequence[Point]]) -> list[Plot]:
    """Every plot that the runs, with their evaluations, can fill."""
    window = max(map(_window, runs), default=1)
    smoothed = f"Thin: each rollout; thick: the mean of {window} around it. " if window > 1 else ""
    plots: list[Plot] = []
    if any(points) or any(run.numbers("accuracy").notna().any() for run in runs):
        caption = (f"Lines: the questions of each rollout. {smoothed}Marks: evaluations, with 95% intervals over "
                   "questions where the answers are there.")
        plots = plot("training", "Right answers while training", caption + _gaps(runs, [("accuracy", "accuracy", "")]),
                     [lambda axis: _accuracy(axis, runs, points)], 3.9)
    for name, title, numbers in (("training_signal", "What was earned, and what the agent did", _LEARNING),
                                 ("training_updates", "Updates", _UPDATES)):
        shown = [each for each in numbers if any(run.numbers(each[0]).notna().any() for run in runs)]
        plots += plot(name, title, (smoothed or "Each rollout.").strip() + _gaps(runs, shown),
                      [_curves(runs, *each) for each in shown])
    return plots


def _gaps(runs: Sequence[TrainingRun], numbers: Sequence[tuple[str, str, str]]) -> str:
    names = [title for name, title, _ in numbers if any(run.numbers(name).isna().any() for run in runs)]
    return f" Gaps in {', '.join(names)}: values that are no numbers, or beyond 1e+30." if names else ""


def _curves(runs: Sequence[TrainingRun], name: str, title: str, scale: str) -> Draw:
    def draw(axis: Axes) -> None:
        for number, run in enumerate(runs):
            _smoothed(axis, run, number, name, 100.0 if scale == "percent" else 1.0)
        _name(axis, title, "rollouts", scale)

    return draw


def _accuracy(axis: Axes, runs: Sequence[TrainingRun], found: Sequence[Sequence[Point]]) -> None:
    """Accuracy of rollouts, and hollow marks for the first, the middle and the last of the evaluation files."""
    lengths = list(dict.fromkeys(point.length for points in found for point in points))
    if len(lengths) > 4:
        lengths = [lengths[0], lengths[len(lengths) // 2], lengths[-1]]
    metric = next((metric_name(point.metric) for points in found for point in points), "")
    for number, (run, points) in enumerate(zip(runs, found, strict=True)):
        _smoothed(axis, run, number, "accuracy", 100.0)
        for place, length in enumerate(lengths):
            own = [point for point in points if point.length == length]
            if own:
                style = line_style(place) | {"markerfacecolor": "none", "linewidth": 1}
                style["color"] = COLOURS[(number + (len(runs) == 1) * (place + 1)) % 7]
                axis.errorbar([point.rollouts for point in own], [point.score.mean for point in own],
                              bars(point.score for point in own),
                              label=f"evaluation {length}" + f", {run.label}" * (len(runs) > 1), **style)
    label = f"rollouts: accuracy; marks: {metric}" if metric else "accuracy"
    _name(axis, "", "rollouts", "percent", label)


def _smoothed(axis: Axes, run: TrainingRun, number: int, name: str, factor: float) -> None:
    values = factor * run.numbers(name)
    window, colour = _window(run), COLOURS[number % 7]
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if window > 1:
        axis.plot(values.index, values, color=colour, linewidth=0.6, alpha=0.35)
    # A value between two gaps has no line: its dot shows it.
    means = values.rolling(window, center=True, min_periods=1).mean().where(values.notna())
    axis.plot(means.index, means, **line_style(number) | {"marker": ".", "markersize": 2.5}, label=run.label)


def _window(run: TrainingRun) -> int:
    """An odd number of rollouts, a twentieth of the run, at most 501; 1 in a run of few."""
    return min(2 * (len(run.rollouts) // 40) + 1, 501)
