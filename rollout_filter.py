"""The dynamic sampling filter hook: drop documents whose trajectories cannot teach anything.

    --dynamic-sampling-filter-path mem_agent.rollout_filter.nonzero_std

Source: DAPO, arXiv 2503.14476, section 3.2. Safe for fan-outs: an element of the group may be a Sample or a list of
Samples of one trajectory, which counts once. Failed and aborted trajectories are no evidence either way.
"""

from __future__ import annotations

from typing import Any


def nonzero_std(args: Any, samples: list[Any], **kwargs: Any) -> bool:
    """Keep the group iff at least two usable trajectories have different rewards."""
    return len(set(usable_rewards(args, samples))) > 1


def usable_rewards(args: Any, samples: list[Any]) -> list[float | None]:
    """One reward per trajectory of the group that ended by itself."""
    trajectories = [s[0] if isinstance(s, list) else s for s in samples]
    return [reward_value(args, s) for s in trajectories if s.status.value in ("completed", "truncated")]


def reward_value(args: Any, sample: Any, evaluation: bool = False) -> float | None:
    """The reward as a number, also where the host wants a dict of rewards; None where nothing scored the sample.

    Hosts look their key up in dicts only, so an ``args`` without one is legal wherever rewards are plain numbers.
    """
    if not isinstance(sample.reward, dict):
        return sample.reward
    return sample.reward[(args.eval_reward_key if evaluation else None) or args.reward_key]
