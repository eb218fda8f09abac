"""Where runs stand: each against the published systems, over the lengths that both have.

Invariants:
- only the published metric is compared with published numbers, and only at lengths that both sides have;
- "above" and "below" are said only of a difference larger than both 95% intervals together explain; a published
  accuracy's interval is that of its number of questions, however many lengths are averaged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from statistics import fmean

from ..evaluation.statistics import Estimate
from .measures import Summary, main_metric
from .published import METRIC, Published, half_width, published_rows


@dataclass(frozen=True, slots=True)
class Headline:
    """One run on one task in its main metric, averaged over its lengths."""

    run: str
    task: str
    metric: str
    lengths: tuple[str, ...]
    mean: float
    shortest: Estimate
    longest: Estimate
    failed: int
    missing: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One run beside one published system: both averaged over ``lengths``."""

    run: str
    task: str
    published: Published
    lengths: tuple[str, ...]
    mine: float
    half: float
    """Half of the 95% interval of ``mine``."""
    theirs: float

    @property
    def verdict(self) -> str:
        """above, below, or level: no difference that so many questions can show."""
        difference = self.mine - self.theirs
        if abs(difference) <= hypot(self.half, half_width(self.theirs)):
            return "level"
        return "above" if difference > 0 else "below"


def headlines(summaries: Sequence[Summary]) -> tuple[Headline, ...]:
    found = [_headline(run, task, cells) for (run, task), cells in _by_run(summaries).items()]
    return tuple(headline for headline in found if headline)


def comparisons(summaries: Sequence[Summary]) -> tuple[Comparison, ...]:
    """Every run beside every published system that shares a length with it."""
    found = [
        _comparison(run, task, row, cells)
        for (run, task), cells in _by_run(summaries).items()
        for row in published_rows(task)
    ]
    return tuple(comparison for comparison in found if comparison)


def _by_run(summaries: Sequence[Summary]) -> dict[tuple[str, str], list[Summary]]:
    grouped: dict[tuple[str, str], list[Summary]] = defaultdict(list)
    for summary in summaries:
        grouped[summary.run, summary.task].append(summary)
    return grouped


def _headline(run: str, task: str, cells: Sequence[Summary]) -> Headline | None:
    metric = main_metric(name for cell in cells for name in cell.scores)
    scored = [cell for cell in cells if metric and metric in cell.scores]
    if not metric or not scored:
        return None
    estimates = [cell.scores[metric] for cell in scored]
    return Headline(
        run, task, metric, tuple(cell.length for cell in scored), fmean(e.mean for e in estimates),
        estimates[0], estimates[-1], sum(cell.failed for cell in cells), sum(cell.missing for cell in cells),
    )


def _comparison(run: str, task: str, row: Published, cells: Sequence[Summary]) -> Comparison | None:
    shared = [cell for cell in cells if cell.length in row.accuracy and METRIC in cell.scores]
    if not shared:
        return None
    scores = [cell.scores[METRIC] for cell in shared]
    lengths = tuple(cell.length for cell in shared)
    # Lengths may ask the same questions, so their average is taken to be no surer than its least sure length.
    half = max((score.high - score.low) / 2 for score in scores)
    theirs = fmean(row.accuracy[length] for length in lengths)
    return Comparison(run, task, row, lengths, fmean(score.mean for score in scores), half, theirs)
