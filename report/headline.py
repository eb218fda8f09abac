"""What a reader takes away: one number and one sentence for each comparison, or for the only run.

Several evaluations are each set against the first one. Reading follows the interval: a difference is called better or
worse only where its 95% interval leaves 0 out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..evaluation.overall import OverallDifference, overall, overall_differences
from ..evaluation.results import Results
from ..evaluation.statistics import Estimate
from .training_run import TrainingRun, first_and_last
from .wording import metric_name, shorten

MOST = 4
_READING = {1: "better", 0: "no clear difference", -1: "worse"}


@dataclass(frozen=True, slots=True)
class Headline:
    number: str
    sentence: str
    reading: str = ""
    """``better``, ``worse`` or ``no clear difference`` of a comparison."""


def headlines(runs: Sequence[Results], trained: Sequence[TrainingRun]) -> list[Headline]:
    """Comparisons first, at most ``MOST`` of them; how rewards moved only where nothing was evaluated."""
    if not runs:
        return [line for run in trained if (line := _of_training(run))][:MOST]
    if len(runs) == 1:
        return _of_one(runs[0])[:MOST]
    found = [line for run in runs[1:] for line in _of_two(runs[0], run)]
    left = len(found) - MOST
    more = [Headline("…", f"and {left} more comparisons in the table below.")] if left > 0 else []
    return found[:MOST] + more


def _of_two(base: Results, run: Results) -> list[Headline]:
    found = overall_differences(base, run)
    if not found:
        return [Headline("–", f"{shorten(run.label)} and {shorten(base.label)} have no answers to the same data: they "
                         "are shown together, and not compared.")]
    return [_difference(shorten(base.label), shorten(run.label), each) for each in found]


def _difference(base: str, run: str, each: OverallDifference) -> Headline:
    points, p = each.found.difference, each.found.p_text
    reading = _READING[(points.low > 0) - (points.high < 0)]
    clear = f"{run} is {reading} than {base}" if points.low > 0 or points.high < 0 else f"{run} and {base}: {reading}"
    return Headline(
        f"{points.mean:+z.1f}",
        f"{clear}: {each.found.first:.1f}% to {each.found.second:.1f}% in {metric_name(each.metric)}, "
        f"{points.mean:+z.1f} points with a 95% interval of {points.low:+z.1f} to {points.high:+z.1f}, "
        f"p {'' if p.startswith('<') else '= '}{p}; "
        f"{_over(points, each.cells)}.",
        reading,
    )


def _of_one(run: Results) -> list[Headline]:
    return [
        Headline(
            f"{each.found.mean:.1f}%",
            f"{shorten(run.label)}: {metric_name(each.metric)} {each.found.mean:.1f}% with a 95% interval of "
            f"{each.found.low:.1f} to {each.found.high:.1f}; {_over(each.found, each.cells)}.",
        )
        for each in overall(run.cells)
    ]


def _over(found: Estimate, cells: Sequence[str]) -> str:
    questions = f"{found.n:,} question{'s' * (found.n != 1)}"
    return f"{questions}, each averaged over the {len(cells)} files it is in" if len(cells) > 1 else questions


def _of_training(run: TrainingRun) -> Headline | None:
    ends = first_and_last(run, "reward")
    if ends is None:
        return None
    first, last, count = ends
    return Headline(
        f"{last - first:+z.3f}",
        f"{shorten(run.label)}: mean reward {first:.3f} in the first {count} of {len(run.rollouts)} rollouts, "
        f"{last:.3f} in the last {count}. Rollouts have other questions each, and nothing was evaluated: no interval.",
    )
