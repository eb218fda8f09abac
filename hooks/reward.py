"""The reward hook, ``mem_agent.rollout.reward_func``: what the outcome of one trajectory is worth."""

from __future__ import annotations

from typing import Any

from ..config import Config
from ..rewards.exact_match import boxed_exact_match


async def reward_func(args: Any, sample: Any, **kwargs: Any) -> Any:
    """Outcome reward: 1.0 if the boxed answer of ``sample.response`` equals one of the golds, else 0.0.

    In training a right answer pays for its rounds: ``1 - MEM_TURN_COST * rounds / (chunks + 1)``. Reading all
    chunks one by one costs MEM_TURN_COST, however long the document. So any right answer is worth more than a
    wrong one, of two right ones the quicker is worth more, and ending early never pays where it loses more than
    MEM_TURN_COST of the right answers. Wrong answers pay nothing: among siblings that are all wrong, the cost
    would only teach to give up. What an answer was worth without it is ``train_metadata["accuracy"]``.

    ``sample`` may be a list (hosts do that for groups and fan-outs); the result is then a list.
    """
    if isinstance(sample, list):
        return [_reward(args, one) for one in sample]
    return _reward(args, sample)


def _reward(args: Any, sample: Any) -> Any:
    golds = golds_of(sample)
    accuracy = boxed_exact_match(sample.response or "", golds) if golds else 0.0
    written = sample.train_metadata or {}
    if "counts" not in written:  # of another generate hook
        return keyed(args, accuracy)
    written["accuracy"] = accuracy
    cost = 0.0 if written["evaluation"] else Config.from_args(args).turn_cost
    counts = written["counts"]
    share = min(1.0, counts["rounds"] / (counts["chunks"] + 1)) if cost else 0.0
    return keyed(args, accuracy * (1 - cost * share))


def keyed(args: Any, reward: float) -> Any:
    """With ``--reward-key`` hosts expect a dict, and look the key up in every sample, failed ones included."""
    key = getattr(args, "reward_key", None)
    return {key: reward} if key else reward


def golds_of(sample: Any) -> list[str]:
    golds = (sample.metadata or {}).get("ground_truth")
    if golds is None:
        golds = sample.label
    if golds is None:
        return []
    return [str(g) for g in golds] if isinstance(golds, list | tuple) else [str(golds)]
