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


def usable_rewards(args: Any, samples: list[Any]) -> list[float]:
    """One reward per trajectory of the group that ended by itself."""
    trajectories = [s[0] if isinstance(s, list) else s for s in samples]
    usable = [s for s in trajectories if s.status.value in ("completed", "truncated")]
    return [s.reward[args.reward_key] if isinstance(s.reward, dict) else s.reward for s in usable]
