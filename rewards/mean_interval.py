"""How far the mean reward of a rollout may be from that of all documents: half of its 95% interval.

The unit is the group: trajectories of one document are no independent evidence. With G groups, N rewards and mean m ::

    half width = t(G - 1) * sqrt(G / (G - 1) * sum over groups of (sum of (reward - m)) ** 2) / N

For groups of one size that is Student's interval of the group means. Two groups of two, rewards 0 1 and 1 1: m = 0.75,
the groups are -0.5 and 0.5 from it, sqrt(2 * 0.5) / 4 = 0.25, times t(1) = 12.706.
"""

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
    """Of the mean over all rewards in ``groups``, none of which is empty; None with fewer than two groups."""
    if len(groups) < 2:
        return None
    count = sum(map(len, groups))
    mean = sum(map(sum, groups)) / count
    spread = sum(sum(reward - mean for reward in group) ** 2 for group in groups)
    degrees = len(groups) - 1
    t = _T[degrees - 1] if degrees <= len(_T) else _T_BEYOND
    return t * math.sqrt(len(groups) / degrees * spread) / count
