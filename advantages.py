"""Group-relative advantages over trajectories.

Source: GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1) without the standard deviation unless asked for, as MemAgent
trains it (arXiv 2507.02259, equation 1; Dr. GRPO, arXiv 2503.20783).

Invariants:
- statistics are over trajectories, never over the turns they unroll into: a long document weighs like a short one;
- a trajectory that failed for reasons outside the policy (``reward is None``) is in no mean and gets advantage 0;
- groups are found by key, not by position: permuting the trajectories permutes the advantages;
- a group with one usable trajectory, or with equal rewards, gives 0.

Example, one group with a failure, no std: rewards [1, 0, None, 1] -> mean 2/3 -> [1/3, -2/3, 0, 1/3].
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence


def group_advantages(
    rewards: Sequence[float | None], groups: Sequence[Hashable], divide_by_std: bool = False
) -> list[float]:
    """Reward minus the group's mean, optionally divided by (unbiased standard deviation + 1e-6)."""
    members: dict[Hashable, list[float]] = defaultdict(list)
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None:
            members[group].append(reward)
    scales = {group: _mean_and_scale(values, divide_by_std) for group, values in members.items()}
    return [
        0.0 if reward is None else (reward - scales[group][0]) / scales[group][1]
        for reward, group in zip(rewards, groups, strict=True)
    ]


def _mean_and_scale(values: list[float], divide_by_std: bool) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    if not divide_by_std or len(values) == 1:
        return mean, 1.0
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance) + 1e-6
