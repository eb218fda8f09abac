"""Statistics of rewards: how far a rollout's mean may be off, and what the best of several answers is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
"""Student's t at 97.5%, by degrees of freedom from 1."""
_T_BEYOND = 2.0
"""Above 30 degrees it is between 2.04 and 1.96."""


def half_width(groups: Sequence[Sequence[float]]) -> float | None:
    """Half of the 95% interval of the mean over all rewards in ``groups``, none of which is empty; None with fewer
    than two groups.

    The unit is the group: trajectories of one document are no independent evidence. With G groups, N rewards, mean m::

        half width = t(G - 1) * sqrt(G / (G - 1) * sum over groups of (sum of (reward - m)) ** 2) / N

    For groups of one size that is Student's interval of the group means. Two groups of two, rewards 0 1 and 1 1:
    m = 0.75, the groups are -0.5 and 0.5 from it, sqrt(2 * 0.5) / 4 = 0.25, times t(1) = 12.706.
    """
    if len(groups) < 2:
        return None
    count = sum(map(len, groups))
    mean = sum(map(sum, groups)) / count
    spread = sum(sum(reward - mean for reward in group) ** 2 for group in groups)
    degrees = len(groups) - 1
    t = _T[degrees - 1] if degrees <= len(_T) else _T_BEYOND
    return t * math.sqrt(len(groups) / degrees * spread) / count


def expected_best(values: Sequence[float]) -> float:
    """The mean of the best of k draws, with replacement, from a question's k answers.

    What verl's ``process_validation_metrics`` estimates with 1,000 draws, as an expectation: the i-th smallest is the
    best with probability (i/k)^k - ((i-1)/k)^k. Example: 1 of 4 answers is right: 1 - (3/4)^4 = 0.684.
    """
    k = len(values)
    return sum(value * ((i / k) ** k - ((i - 1) / k) ** k) for i, value in enumerate(sorted(values), 1))


def pass_at(k: int, answers: int, right: int) -> float:
    """The probability that of k answers to a question, drawn without replacement from those that it has, one is right.

    1 - C(n - c, k) / C(n, k), of n answers c being right (Chen et al. 2021, arXiv 2107.03374, equation 1): the
    unbiased estimate of the chance that one of k fresh answers is right. Example: 1 of 4 is right: pass@1 1/4, pass@2
    1 - 3/6 = 1/2, pass@4 1.
    """
    assert 1 <= k <= answers and 0 <= right <= answers, (k, answers, right)
    return 1 - math.comb(answers - right, k) / math.comb(answers, k)


def pass_sizes(answers: int) -> list[int]:
    """The k of which pass@k is told where a question has so many answers: powers of two, and all of them."""
    powers = [2**i for i in range(answers.bit_length()) if 2**i <= answers]
    return list(dict.fromkeys([*powers, answers])) if answers else []
