"""Whether a measure of a long run grows: a test of its slope that restarts and steps do not fool.

A measure is flat unless it grows both for certain and enough to matter:

1. *for certain*: Kendall's test. Of every two samples of ONE process, in order of time, the later is greater (+1) or
   smaller (-1); the sum over all processes of a role, over its standard deviation if order were chance (ties counted,
   processes as the strata of the seasonal form of the test), is ``z``. Above 3 chance is one in 700. A restarted
   process starts a stratum of its own: what it begins with says nothing about growth.
2. *enough*: the slope of Theil and Sen, the median of the slopes of the same pairs, times the rollouts that were seen,
   is above 5% of the median and above the measure's own floor (an allocator's arena, a few handles).

The first half of a process's samples does not count, nor its first ``WARM_UP``: caches and allocators fill, ever more
slowly.

Example: 100 MB, 100.1, 100.2 ... 103 over 30 rollouts is certain (z = 7.7), and 3% is not enough: flat.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

WARM_UP = 8
CERTAIN_Z = 3.0
ENOUGH = 0.05

Series = Sequence[tuple[float, float]]
"""(rollout, value) of one process, by time."""


@dataclass(frozen=True)
class Verdict:
    samples: int
    median: float
    slope: float
    """Per rollout."""
    growth: float
    """The slope times the rollouts that were seen."""
    z: float
    flat: bool | None
    """None: too few samples to say."""


def verdict(strata: Sequence[Series], floor: float) -> Verdict:
    """Of one measure of all processes of a role. ``floor``: growth that does not matter, in the measure's unit."""
    strata = [kept for series in strata if len(kept := list(series)[max(WARM_UP, len(series) // 2):]) >= 3]
    values = [value for series in strata for _, value in series]
    if len(values) < 10:
        return Verdict(len(values), median(values) if values else 0.0, 0.0, 0.0, 0.0, None)
    slopes = [(y - x) / (b - a) for series in strata for (a, x), (b, y) in combinations(series, 2) if b > a]
    rollouts = [rollout for series in strata for rollout, _ in series]
    slope = median(slopes) if slopes else 0.0
    growth, z, middle = slope * (max(rollouts) - min(rollouts)), _kendall(strata), median(values)
    grows = z > CERTAIN_Z and growth > max(floor, ENOUGH * middle)
    return Verdict(len(values), middle, slope, growth, z, not grows)


def _kendall(strata: Sequence[Series]) -> float:
    score, variance = 0, 0.0
    for series in strata:
        score += sum((y > x) - (y < x) for (_, x), (_, y) in combinations(series, 2))
        ties = Counter(value for _, value in series).values()
        variance += (_spread(len(series)) - sum(map(_spread, ties))) / 18
    return score / math.sqrt(variance) if variance else 0.0


def _spread(n: int) -> int:
    return n * (n - 1) * (2 * n + 5)
