"""RULER's tasks side by side, and their averages, as its own table and MemAgent's have them.

================  ==========================================================================================
MemAgent's ten    the eight needle tasks, vt and fwe (its out-of-distribution table, arXiv 2507.02259v1)
RULER's thirteen  those, cwe, qa_1 and qa_2
qa_1, first gold  MemAgent shows qa_1 apart, scored against the first gold (``tasks/qa.py``)
================  ==========================================================================================

MemAgent's numbers are of answers behind "the answer is" (TASK_ARGS answer=the_answer_is), RULER's of whole replies. An
average is the plain mean of its tasks, and absent where one of them has no row. MemAgent rounds each answer's score to
two decimals first, which moves its fwe, where scores are thirds, by at most a third of a point; nothing is rounded
here.

The interval of an average joins those of its tasks, whose questions are independent of each other, after Zou and
Donner (2008, "Construction of confidence limits about effect measures: a general approach")::

    low = mean - sqrt(sum_t (mean_t - low_t)^2) / T        high = mean + sqrt(sum_t (high_t - mean_t)^2) / T

Worked example: 90 [80, 96] and 100 [97, 100] give 95, low 95 - sqrt(100 + 9) / 2 = 89.8, high 95 + 6 / 2 = 98.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from ..rewards.qa_metrics import FIRST_GOLD, MEMAGENT_TASKS, TASKS
from .statistics import Estimate
from .summary import Summary

_METRIC = "ruler"


@dataclass(frozen=True, slots=True)
class RulerLine:
    """What one run scores at one length, in percent."""

    run: str
    length: str
    tasks: Mapping[str, Estimate]
    """Of the thirteen, in RULER's order, those that have rows."""
    first_gold: Estimate | None
    """MemAgent's score of qa_1."""

    @property
    def ten(self) -> Estimate | None:
        return self._average(MEMAGENT_TASKS)

    @property
    def thirteen(self) -> Estimate | None:
        return self._average(TASKS)

    def _average(self, names: Sequence[str]) -> Estimate | None:
        return average([self.tasks[name] for name in names]) if self.tasks.keys() >= set(names) else None


def ruler_lines(summaries: Sequence[Summary]) -> tuple[RulerLine, ...]:
    """A line for each run and length with at least two of RULER's tasks, in the order of ``summaries``."""
    found: dict[tuple[str, str], dict[str, Summary]] = defaultdict(dict)
    for summary in summaries:
        if summary.task in TASKS and _METRIC in summary.scores:
            found[summary.run, summary.length][summary.task] = summary
    return tuple(_line(run, length, cells) for (run, length), cells in found.items() if len(cells) > 1)


def _line(run: str, length: str, cells: Mapping[str, Summary]) -> RulerLine:
    tasks = {name: cells[name].scores[_METRIC] for name in TASKS if name in cells}
    first_gold = cells["qa_1"].scores.get(FIRST_GOLD) if "qa_1" in cells else None
    return RulerLine(run, length, tasks, first_gold)


def tasks_of(lines: Sequence[RulerLine]) -> list[str]:
    """The tasks that any line has, in RULER's order."""
    return [name for name in TASKS if any(name in line.tasks for line in lines)]


def average(scores: Sequence[Estimate]) -> Estimate:
    """The mean of independent estimates; its interval as above, its n the questions of all."""
    mean = sum(score.mean for score in scores) / len(scores)
    below = sqrt(sum((score.mean - score.low) ** 2 for score in scores)) / len(scores)
    above = sqrt(sum((score.high - score.mean) ** 2 for score in scores)) / len(scores)
    return Estimate(mean, mean - below, mean + above, sum(score.n for score in scores))
