"""A trajectory as the host's ``Sample``, where ``custom_convert`` and the metrics find it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..agents.records import Outcome, Trajectory
from ..rewards.memory_state import Rewards
from .metrics import Record
from .reward import keyed

PLACEHOLDER: dict[str, Any] = {"tokens": [0, 0], "response_length": 1, "loss_mask": [0], "rollout_log_probs": [0.0]}
"""A row that trains nothing and is legal for every host: one prompt token, one masked response token."""

FINISHED = (Outcome.COMPLETED, Outcome.TRUNCATED)
"""The outcomes of a trajectory that ended with its final turn."""


def write_trajectory(
    args: Any,
    sample: Any,
    trajectory: Trajectory,
    memories: Sequence[Record] = (),
    states: Sequence[Rewards] = (),
    evaluation: bool = False,
) -> Any:
    """Write the outcome into the host's Sample; ``sample.Status`` is the host's own enum."""
    sample.status = sample.Status(trajectory.outcome.value)
    sample.response = trajectory.answer
    turns = [turn_row(t) for t in trajectory.turns]
    if states:
        turns = [turn | {"state_rewards": rewards} for turn, rewards in zip(turns, states, strict=True)]
    sample.train_metadata = {
        "turns": turns,
        "memories": list(memories),
        "outcome": trajectory.outcome.value,
        "failure": trajectory.failure.kind.value if trajectory.failure else None,
        "failure_message": trajectory.failure.message if trajectory.failure else None,
        "counts": dict(trajectory.counts),
        "evaluation": evaluation,
    }
    sample.weight_versions = list(dict.fromkeys(t.weight_version for t in trajectory.turns if t.weight_version))
    _write_cache_counts(sample, turns)
    finished = trajectory.outcome in FINISHED
    row = turns[-1] if finished else PLACEHOLDER
    sample.tokens = list(row["tokens"])
    sample.response_length = row["response_length"]
    sample.loss_mask = list(row["loss_mask"])
    sample.rollout_log_probs = list(row["rollout_log_probs"])
    if not finished:
        sample.reward, sample.remove_sample = keyed(args, 0.0), True
    return sample


def turn_row(turn: Any) -> dict[str, Any]:
    """One turn as the fields of a training row: ``tokens = prompt + reply``, every reply token trained."""
    return {
        "tokens": [*turn.prompt_ids, *turn.response_ids],
        "response_length": len(turn.response_ids),
        "loss_mask": [1] * len(turn.response_ids),
        "rollout_log_probs": list(turn.log_probs),
        "kind": turn.kind.value,
        "stop": turn.stop.value,
        "prompt_tokens": len(turn.prompt_ids),
        "cached_tokens": turn.cached_tokens,
    }


def _write_cache_counts(sample: Any, turns: Sequence[Record]) -> None:
    """Fill what slime and vime compute their own cache metrics from; turns name the counts as their ``add`` does.

    ``hasattr`` is the hosts' contract: the embedded host's Sample, and those of older hosts, have no such attribute.
    A new one replaces what an earlier attempt at this sample counted.
    """
    if hasattr(sample, "prefix_cache_info"):
        sample.prefix_cache_info = type(sample.prefix_cache_info)()
        for turn in turns:
            sample.prefix_cache_info.add(turn)
