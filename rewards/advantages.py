"""Group-relative advantages over trajectories.

Source: GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1) without the standard deviation unless asked for, as MemAgent
trains it (arXiv 2507.02259, equation 1; Dr. GRPO, arXiv 2503.20783).

Invariants:
- statistics are over trajectories, never over the turns they unroll into: a long document weighs like a short one;
- a trajectory that failed for reasons outside the policy (``reward is None``) is in no mean and gets advantage 0;
- groups are found by key, not by position: permuting the trajectories permutes the advantages;
- a group with one usable trajectory, or with equal rewards, gives 0.

Example, one group with a failure, no std: rewards [1, 0, None, 1] -> mean 2/3 -> [1/3, -2/3, 0, 1/3].

Turns that earn something by themselves (``rewards.memory_state``) have a state advantage besides: reward minus the
mean over the group's trajectories at the same turn, never divided by a deviation; a turn's advantage is then
``alpha * outcome + (1 - alpha) * weight * state`` (ReMemR1, arXiv 2509.23040, section 3.3, where the weight is 1; its
released code sums each state reward twice, verl/trainer/ppo/ray_trainer.py, so its weight is 2). Example, alpha 0.8,
one group, weight 1 (with weight 2 the first is 0.6)::

    outcome 1, state [2, 1]    -> outcome advantage  0.5, state [0.5,  0.0] -> [ 0.5,  0.4]
    outcome 0, state [1, 1]    ->                   -0.5        [-0.5, 0.0] -> [-0.5, -0.4]
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


def turn_advantages(
    outcomes: Sequence[float],
    states: Sequence[Sequence[float] | None],
    groups: Sequence[Hashable],
    alpha: float,
    state_weight: float = 1.0,
) -> list[list[float] | None]:
    """The advantage of every turn from the outcome's advantages and the turns' state rewards.

    None stays None: a trajectory without state rewards is trained on its outcome alone, and is in no mean.
    """
    turns = [(i, t, reward) for i, rewards in enumerate(states) for t, reward in enumerate(rewards or ())]
    advantages = group_advantages([reward for _, _, reward in turns], [(groups[i], t) for i, t, _ in turns])
    mixed: list[list[float] | None] = [None if rewards is None else [] for rewards in states]
    for (i, _, _), state in zip(turns, advantages, strict=True):
        own = mixed[i]
        assert own is not None, "only trajectories with state rewards have turns here"
        own.append(alpha * outcomes[i] + (1 - alpha) * state_weight * state)
    return mixed


def _mean_and_scale(values: list[float], divide_by_std: bool) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    if not divide_by_std or len(values) == 1:
        return mean, 1.0
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance) + 1e-6
