"""The curves of training runs, with the evaluations of their checkpoints on them.

Thin: every rollout; thick: the mean of the rollouts around it, over a twentieth of the run, of 501 at most. A
rollout's questions are others each time, so only evaluations, which ask the same ones, have intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import nan
from statistics import fmean
from typing import Any

from .drawable import is_drawable
from .panels import Curve, Panel, Plot, line_style, plot
from .themes import COLOURS
from .training_run import Point, TrainingRun
from .wording import metric_name

_LENGTHS = 4
"""Most evaluation files that have a line of their own."""
_WIDEST = 501
"""Rollouts of a mean: every point is one of so many."""
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


def draw_training(runs: Sequence[TrainingRun], points: Sequence[Sequence[Point]]) -> tuple[Plot, ...]:
    """Every plot that the runs, with their evaluations, can fill."""
    if not runs:
        return ()
    window = max(_window(run) for run in runs)
    smoothed = f" Thin: each rollout; thick: the mean of {window} around it." if window > 1 else ""
    plots = [
        plot("training", "Right answers while training",
             f"Lines: the questions of each rollout.{smoothed} Marks: evaluations, with 95% intervals over questions "
             "where the answers are there.", [_accuracy(runs, points)]),
        plot("training_signal", "What was earned, and what the agent did", smoothed.strip() or "Each rollout.",
             [_panel(runs, *each) for each in _LEARNING]),
        plot("training_updates", "Updates", smoothed.strip() or "Each rollout.",
             [_panel(runs, *each) for each in _UPDATES]),
    ]
    return tuple(drawn for drawn in plots if drawn)


def _accuracy(runs: Sequence[TrainingRun], found: Sequence[Sequence[Point]]) -> Panel:
    curves = []
    lengths = list(dict.fromkeys(point.length for points in found for point in points))
    if len(lengths) > _LENGTHS:
        lengths = [lengths[0], lengths[len(lengths) // 2], lengths[-1]]
    for number, (run, points) in enumerate(zip(runs, found, strict=True)):
        curves += _smoothed(run, number, "accuracy", 100.0, alone=len(runs) == 1, named=True)
        curves += [_evaluated(runs, number, points, length, place) for place, length in enumerate(lengths)]
    metric = next((metric_name(point.metric) for points in found for point in points), "")
    return Panel("", "rollouts", f"rollouts: accuracy; marks: {metric}" if metric else "accuracy", None, curves,
                 "percent")


def _evaluated(runs: Sequence[TrainingRun], number: int, points: Sequence[Point], length: str, place: int) -> Curve:
    """One evaluation file over a run: hollow marks on a line of the file's dash."""
    style = line_style(place)
    style |= {
        "color": COLOURS[(number + (len(runs) == 1) * (place + 1)) % len(COLOURS)], "markerfacecolor": "none",
        "markersize": style["markersize"] + 1, "linewidth": 0.6 * style["linewidth"], "zorder": style["zorder"] + 1,
    }
    own = [point for point in points if point.length == length]
    label = f"evaluation {length}" + f", {runs[number].label}" * (len(runs) > 1)
    return Curve(label, style, [(point.rollouts, point.mean, point.found) for point in own])


def _panel(runs: Sequence[TrainingRun], name: str, title: str, scale: str) -> Panel:
    factor = 100.0 if scale == "percent" else 1.0
    curves = [curve for number, run in enumerate(runs)
              for curve in _smoothed(run, number, name, factor, alone=len(runs) == 1, named=len(runs) > 1)]
    return Panel(title, "rollouts", "", None, curves, scale)


def _smoothed(run: TrainingRun, number: int, name: str, factor: float, *, alone: bool, named: bool) -> list[Curve]:
    values = [(done, factor * numbers[name]) for done, numbers in run.rollouts.items() if name in numbers]
    style: Mapping[str, Any] = line_style(number) | {"marker": "", **({"linewidth": 2.2} if alone else {})}
    window, label = _window(run), run.label if named else ""
    if window == 1:
        return [Curve(label, style, [(done, value, None) for done, value in values])]
    thin = {"color": style["color"], "marker": "", "markersize": 2.5, "linewidth": 0.6, "alpha": 0.35, "zorder": 2}
    half = window // 2
    drawn = [value for _, value in values if is_drawable(value)]
    before = [0, *accumulate(is_drawable(value) for _, value in values)]
    means = [fmean(drawn[before[max(0, i - half)] : before[min(len(values), i + half + 1)]])
             if is_drawable(value) else nan for i, (_, value) in enumerate(values)]
    return [
        Curve("", thin, [(done, value, None) for done, value in values]),
        Curve(label, style, [(done, mean, None) for (done, _), mean in zip(values, means, strict=True)]),
    ]


def _window(run: TrainingRun) -> int:
    """An odd number of rollouts, a twentieth of the run, at most ``_WIDEST``; 1 in a run of few."""
    return min(2 * (len(run.rollouts) // 40) + 1, _WIDEST)
