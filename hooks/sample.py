"""One trajectory on its way through the hooks: the host's ``Sample``, and how everything here reads one.

slime and vime bring a ``Sample`` of their own; the embedded host's, below, has the fields that the hooks use. Hooks
never import a host's class: they look at ``status.value`` and at the fields named here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..agents.records import Outcome


@dataclass
class Sample:
    """One trajectory on its way from the data source to the converter; hooks write into it."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    prompt: str | list[dict[str, str]] = ""
    label: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    group_index: int | None = None
    """Number of the document's draw from the data source; siblings share it."""
    index: int | None = None
    """Number of the trajectory, unique over the run."""
    rollout_id: int | None = None

    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    reward: float | dict[str, float] | None = None
    status: Status = Status.PENDING
    remove_sample: bool = False
    train_metadata: dict[str, Any] | None = None
    """See ``record.Record``."""
    weight_versions: list[str] = field(default_factory=list)


def ended(sample: Any) -> bool:
    """Whether the trajectory ended with its final turn."""
    return sample.status.value in (Outcome.COMPLETED, Outcome.TRUNCATED)


def lost(sample: Any) -> bool:
    """Whether the trajectory was aborted or failed: it trains nothing and is in no group's statistics."""
    return sample.status.value in (Outcome.ABORTED, Outcome.FAILED)


def was_aborted(sample: Any) -> bool:
    return sample.status.value == Outcome.ABORTED


def has_failed(sample: Any) -> bool:
    return sample.status.value == Outcome.FAILED


def truncated(sample: Any) -> bool:
    """Whether the final answer hit its token budget."""
    return sample.status.value == Outcome.TRUNCATED


def gold_answers(sample: Any) -> list[str]:
    """The accepted answers: ``metadata["ground_truth"]``, else ``label``."""
    golds = (sample.metadata or {}).get("ground_truth")
    if golds is None:
        golds = sample.label
    if golds is None:
        return []
    return [str(g) for g in golds] if isinstance(golds, list | tuple) else [str(golds)]


def reward_of(sample: Any, key: str = "") -> float | None:
    """The reward as a number, also where the host wants a dict of rewards; None where nothing scored the sample.

    Args:
        key: the host's reward key; looked up in dicts only, so it may be empty wherever rewards are plain numbers.
    """
    return sample.reward[key] if isinstance(sample.reward, dict) else sample.reward


def as_reward(value: float, key: str) -> Any:
    """``value`` as the host wants it: with ``--reward-key`` a dict, in failed samples too."""
    return {key: value} if key else value
