"""A whole evaluation in one number, and one evaluation against another: what a headline says.

The unit is still the question: evaluation files of several lengths ask the same questions under the same ids, so a
question's scores at the lengths are averaged first, and what is resampled is the question with all of them. Two
lengths of two questions::

    length   q1   q2
    50      100  100
    200       0  100      q1 50, q2 100: mean 75, and draws are of {50, 100}, not of the four scores

Invariants: a metric has a number of its own, never an average over metrics; one evaluation is set against another on
the answers that both have, and only where the data are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .results import Cell, Results
from .statistics import Comparison, Estimate, compare, interval
from .summary import main_metric, question_scores, shared_metrics

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Overall:
    """One metric over every length and task that has it, in percent."""

    metric: str
    cells: tuple[str, ...]
    found: Estimate


@dataclass(frozen=True, slots=True)
class OverallDifference:
    """The same of two evaluations: the second minus the first, in points."""

    metric: str
    cells: tuple[str, ...]
    found: Comparison


def overall(cells: Sequence[Cell]) -> list[Overall]:
    """One for each metric by which some cell is judged."""
    scores: dict[str, list[tuple[Cell, Mapping[str, float]]]] = defaultdict(list)
    for cell in cells:
        if metric := main_metric(shared_metrics(cell.rows)):
            scores[metric].append((cell, question_scores(cell.rows, metric)))
    return [
        Overall(metric, tuple(cell.name for cell, _ in found), interval(_by_unit(found).values(), full=100.0))
        for metric, found in scores.items()
    ]


def overall_differences(base: Results, run: Results) -> list[OverallDifference]:
    """``run`` minus ``base``; empty where no answer of the same data stands in both."""
    first = {cell.name: cell for cell in base.cells}
    pairs: dict[str, list[tuple[Cell, Mapping[str, float], Mapping[str, float]]]] = defaultdict(list)
    for cell in run.cells:
        before = first.get(cell.name)
        if before is None or before.data != cell.data:
            continue
        if metric := main_metric(shared_metrics((*before.rows, *cell.rows))):
            ours, theirs = question_scores(before.rows, metric), question_scores(cell.rows, metric)
            shared = ours.keys() & theirs.keys()
            if shared:
                kept = {q: ours[q] for q in ours if q in shared}, {q: theirs[q] for q in ours if q in shared}
                pairs[metric].append((cell, *kept))
    return [
        OverallDifference(
            metric, tuple(cell.name for cell, _, _ in found),
            compare(_by_unit([(cell, ours) for cell, ours, _ in found]),
                    _by_unit([(cell, theirs) for cell, _, theirs in found])),
        )
        for metric, found in pairs.items()
    ]


def _by_unit(found: Sequence[tuple[Cell, Mapping[str, float]]]) -> dict[Key, float]:
    """The mean of each question of a task over its lengths."""
    values: dict[Key, list[float]] = defaultdict(list)
    for cell, scores in found:
        for question, score in scores.items():
            values[cell.task, question].append(score)
    return {unit: sum(each) / len(each) for unit, each in values.items()}
