"""The dynamic sampling filter hook: drop documents whose trajectories cannot teach anything.

    --dynamic-sampling-filter-path mem_agent.hooks.filter.nonzero_std

Source: DAPO, arXiv 2503.14476, section 3.2. Safe for fan-outs: an element of the group may be a Sample or a list of
Samples of one trajectory, which counts once. Failed and aborted trajectories are no evidence either way.
"""

from __future__ import annotations

from typing import Any

from ..config import Config


def nonzero_std(args: Any, samples: list[Any], **kwargs: Any) -> bool:
    """Keep the group iff at least two usable trajectories have different rewards, those of their turns included."""
    trajectories = [s[0] if isinstance(s, list) else s for s in samples]
    usable = [s for s in trajectories if s.status.value in ("completed", "truncated")]
    by_turn = Config.from_args(args).mem_alpha < 1
    return len({(reward_value(args, s), *((state_totals(s) or ()) if by_turn else ())) for s in usable}) > 1


def reward_value(args: Any, sample: Any, evaluation: bool = False) -> float | None:
    """The reward as a number, also where the host wants a dict of rewards; None where nothing scored the sample.

    Hosts look their key up in dicts only, so an ``args`` without one is legal wherever rewards are plain numbers.
    """
    if not isinstance(sample.reward, dict):
        return sample.reward
    return sample.reward[(args.eval_reward_key if evaluation else None) or args.reward_key]


def state_totals(sample: Any) -> list[float] | None:
    """What each turn earned by itself (``train_metadata["turns"]``); None where turns earn nothing."""
    turns = (sample.train_metadata or {}).get("turns") or []
    named = [turn.get("state_rewards") for turn in turns]
    if all(rewards is None for rewards in named):
        return None
    assert None not in named, f"sample {sample.index}: {named.count(None)} of {len(named)} turns have no state rewards"
    return [sum(rewards.values()) for rewards in named]
