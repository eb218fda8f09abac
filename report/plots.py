"""The plots: accuracy of evaluations by length, and the curves of training runs.

A plot is panels side by side, at most three in a row, or in a narrow window one below the other. Its SVG is
transparent; in the dark the page turns its colours around.

Invariants:
- runs of one report have the same colour, dash and marker in every plot, and the first 12 differ without colours;
- lengths are evenly spaced, one doubling apart where they double; every estimate carries its 95% interval, beside
  those of other runs; published numbers have none and are grey;
- of training, thin is every rollout; thick the mean of the rollouts around it, over a twentieth of the run, of 501 at
  most. A value that is no number is a gap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..evaluation.results import length_order
from .data import Material, TrainingRun
from .tables import TEXTS, shorten

# Okabe and Ito's palette, told apart by colour-blind readers; its yellow is too pale for a line on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_GREYS = ("#444444", "#666666", "#808080", "#999999", "#aaaaaa")
_STYLE: Any = {"text.parse_math": False, "svg.hashsalt": "mem_agent", "svg.fonttype": "path", "font.size": 9,
               "axes.titlesize": 10, "axes.titlelocation": "left", "axes.grid": True, "grid.color": "#d8d8d8",
               "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False}  # a run may be called $x$
Draw = Callable[[Axes], None]


class Plot(NamedTuple):
    name: str
    """File name without ``.png``."""
    title: str
    caption: str
    png: bytes
    svg: bytes
    panels: list[bytes]
    """Each panel's own SVG, for a narrow window."""


def plots_of(material: Material) -> list[Plot]:
    """Every plot that the runs, with their evaluations, can fill."""
    trained, frame, points = material.trained, material.frame, material.points
    known = {name for run in trained for name in run.rollouts}
    runs = list(frame.loc[frame["kind"] == "run", "run"].unique())
    panels = []
    for _, part in frame[frame["main"] | (frame["family"] == "score")].groupby("task", sort=False):
        judged_by = set(part.loc[part["main"], "metric"])
        published = set(part.loc[part["drawn"], "metric"])
        if judged_by - published:
            panels.append(partial(_by_length, part[part["main"]], runs))
        for metric in published:
            panels.append(partial(_by_length, part[part["metric"] == metric], runs))
    window = max(map(_window, trained), default=1)
    accuracy = [partial(_accuracy, trained, points)] if len(points) or "accuracy" in known else []
    curves = [partial(_curves, trained, name) for name in TEXTS["curves"] if name in known]
    return plot("training", accuracy, 3.9, window) + plot("curves", curves, 2.9, window) + plot("accuracy", panels)


def plot(name: str, panels: Sequence[Draw], height: float = 2.9, window: int = 1) -> list[Plot]:
    """The plot of this name in ``texts.yaml``, each of its panels ``height`` inches high; none without a panel."""
    if not panels:
        return []
    texts = TEXTS["plots"][name]
    with rc_context(_STYLE):
        whole, alone = _figure(panels, height, 10.0), [_figure([panel], height, 4.2) for panel in panels]
        return [Plot(name, texts["title"], texts["note"].format(window=window), _image(whole, "png"),
                     _image(whole, "svg"), [_image(panel, "svg") for panel in alone])]


def _figure(panels: Sequence[Draw], height: float, width: float) -> Figure:
    columns = min(len(panels), 3)
    rows = ceil(len(panels) / columns)
    figure = Figure(dpi=150, layout="constrained")
    for number, draw in enumerate(panels, start=1):
        draw(figure.add_subplot(rows, columns, number))
    found = [axis.get_legend_handles_labels() for axis in figure.axes]
    keys = {label: line for lines, labels in found for line, label in zip(lines, labels, strict=True)}
    if len(keys) > 1:
        figure.legend(list(keys.values()), [shorten(label, int(8 * width)) for label in keys],
                      loc="outside lower center", ncols=1 if max(map(len, keys)) > 2 * width else 3, frameon=False)
    figure.set_size_inches(width, height * rows + (0.24 * len(keys) + 0.2) * (len(keys) > 1))
    return figure


def _image(figure: Figure, form: str) -> bytes:
    """An SVG is transparent; its comments, which hold names as they are, are left out."""
    content = BytesIO()
    figure.savefig(content, format=form, metadata={"Date": None} if form == "svg" else None, transparent=form == "svg")
    return re.sub(rb"<!--.*?-->", b"", content.getvalue(), flags=re.DOTALL) if form == "svg" else content.getvalue()


def _styles(number: int) -> dict[str, Any]:
    """How the run of this number is drawn in every plot."""
    return {"color": COLOURS[number % 7], "linestyle": ("-", "--", ":")[number % 3], "marker": "os^D"[number % 4],
            "markersize": 5, "linewidth": 2}


def _errors(part: pd.DataFrame) -> np.ndarray:
    """How far intervals reach below and above their means; shape (2, lines)."""
    return np.clip([part["mean"] - part["low"], part["high"] - part["mean"]], 0, None)


def _by_length(part: pd.DataFrame, runs: Sequence[str], axis: Axes) -> None:
    """One task's metric in percent: a line for each run, and for each published system that is drawn."""
    task, metric = part[["task", "metric"]].iloc[0]
    ours, published = part[part["kind"] == "run"], part[part["drawn"]]
    lengths = sorted(ours["length"].unique(), key=length_order)
    places, step = {length: at for at, length in enumerate(lengths)}, ceil(len(lengths) / 16)
    for number, run in enumerate(runs):
        own = ours[ours["run"] == run]
        if len(own):
            aside = min(0.04, 0.4 / len(runs)) * (number - (len(runs) - 1) / 2)
            axis.errorbar(own["length"].map(places) + aside, own["mean"], _errors(own), label=run, elinewidth=1.2,
                          **_styles(number))
    for number, (system, own) in enumerate(published.groupby("run", sort=False)):
        known = own[own["length"].isin(places)]
        axis.plot(known["length"].map(places), known["mean"], label=system, color=_GREYS[number % 5],
                  marker="DvPX*"[number % 5], linestyle="--", linewidth=1.4, markersize=5, zorder=1)
    axis.set_xticks(range(0, len(lengths), step), [shorten(length, 12) for length in lengths[::step]])
    axis.set(title=shorten(task, 30), xlabel="length", ylabel=f"{metric}, percent", ylim=(-3, 103))


# --- training -----------------------------------------------------------------------------------------------------


def _curves(runs: Sequence[TrainingRun], name: str, axis: Axes) -> None:
    for number, run in enumerate(runs):
        _smoothed(axis, run, number, name)
    axis.set(title=TEXTS["curves"][name], xlabel="rollouts")


def _accuracy(runs: Sequence[TrainingRun], points: pd.DataFrame, axis: Axes) -> None:
    """Accuracy of rollouts, and hollow marks for the first, the middle and the last of the evaluation files."""
    files = list(points["file"].unique())
    if len(files) > 4:
        files = [files[0], files[len(files) // 2], files[-1]]
    for number, run in enumerate(runs):
        _smoothed(axis, run, number, "accuracy", 100.0)
        for place, file in enumerate(files):
            own = points[(points["run"] == run.label) & (points["file"] == file)]
            if len(own):
                colour = COLOURS[(number + (len(runs) == 1) * (place + 1)) % 7]
                style = _styles(place) | {"markerfacecolor": "none", "linewidth": 1, "color": colour}
                if len(own) < 3:  # two marks are no curve
                    style["linestyle"] = "none"
                axis.errorbar(own["rollouts"], own["mean"], _errors(own), label=f"{run.label}: evaluation {file}",
                              **style)
    axis.set(xlabel="rollouts", ylabel="percent", ylim=(-3, 103))


def _smoothed(axis: Axes, run: TrainingRun, number: int, name: str, factor: float = 1.0) -> None:
    values = factor * run.rollouts.get(name, pd.Series(dtype=float))
    window, colour = _window(run), COLOURS[number % 7]
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if window > 1:
        axis.plot(values.index, values, color=colour, linewidth=0.6, alpha=0.35)
    # A value between two gaps has no line: its dot shows it.
    means = values.rolling(window, center=True, min_periods=1).mean().where(values.notna())
    axis.plot(means.index, means, **_styles(number) | {"marker": ".", "markersize": 2.5}, label=run.label)


def _window(run: TrainingRun) -> int:
    """An odd number of rollouts, a twentieth of the run, at most 501; 1 in a run of few."""
    return min(2 * (len(run.rollouts) // 40) + 1, 501)
