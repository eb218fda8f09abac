"""One trajectory on its way through the hooks: the host's ``Sample``, and the ``Record`` of its turns inside it.

slime and vime bring a ``Sample`` of their own; the embedded host's, below, has the fields that the hooks use. Hooks
never import a host's class: they look at ``status.value`` and at the fields named here.

A record is what a trajectory leaves in ``sample.train_metadata``: written by ``rollout.generate``, read by everything
else, as a dict, which hosts pickle, save with ``torch.save`` and replay; lists of tokens are shared, never copied. A
sample of another generate hook has no record. A turn of 4 prompt and 2 sampled tokens, of which 3 prompt
tokens were in the engine's prefix cache and 2 are the document's first chunk::

    {"kind": "memory", "stop": "stop", "tokens": [1, 2, 3, 4, 50, 51], "prompt_tokens": 4, "log_probs": [-0.1, -0.7],
     "cached_tokens": 3, "round": 0, "section": Section(0, 1, 3), ...}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from ..agents.records import FailureKind, Outcome, StopReason, Trajectory, Turn, TurnKind
from ..system.errors import MemAgentError


@dataclass
class Sample:
    """The embedded host's; hooks write into it."""

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
    """See ``Record``."""
    weight_versions: list[str] = field(default_factory=list)


FINISHED = (Outcome.COMPLETED, Outcome.TRUNCATED)


def ended(sample: Any) -> bool:
    """Whether the trajectory ended with its final turn."""
    return sample.status.value in FINISHED


def lost(sample: Any) -> bool:
    """Whether the trajectory was aborted or failed: it trains nothing and is in no group's statistics."""
    return sample.status.value in (Outcome.ABORTED, Outcome.FAILED)


def gold_answers(sample: Any) -> list[str]:
    """The accepted answers: ``metadata["ground_truth"]``, else ``label``."""
    given = (sample.metadata or {}).get("ground_truth")
    golds = sample.label if given is None else given
    return [str(gold) for gold in (golds if isinstance(golds, list | tuple) else [golds]) if gold is not None]


def reward_of(sample: Any, key: str = "") -> float | None:
    """The reward as a number; None where nothing scored the sample. ``key`` is the host's, for rewards in dicts."""
    return sample.reward[key] if isinstance(sample.reward, dict) else sample.reward


def as_reward(value: float, key: str) -> Any:
    """``value`` as the host wants it: with ``--reward-key`` a dict, in failed samples too."""
    return {key: value} if key else value


# --- the record ---------------------------------------------------------------------------------------------------


PLACEHOLDER = Turn(TurnKind.FINAL, [0, 0], 1, [0.0], StopReason.ABORT)
"""A row that trains nothing and is legal for every host: one prompt token, one masked response token."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """The memory after one round of memory turns."""

    tokens: int
    gold: bool | None
    """Whether an accepted answer stands in it; None where containment tells nothing."""
    text: str = ""
    """Where trajectories are kept (KEEP_TRAJECTORIES)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One trajectory, as data."""

    turns: tuple[Turn, ...] = ()
    memories: tuple[MemoryRecord, ...] = ()
    outcome: Outcome
    failure: FailureKind | None = None
    failure_message: str | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    """See ``agents.records.Trajectory.counts``."""
    evaluation: bool = False
    task: str = ""
    """The row's task, TASK unless the row names one."""
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    """Named parts of the training reward, which is their sum; empty until ``rollout.reward_func`` has scored it."""
    accuracy: float | None = None
    """What the answer was worth to its task, before anything else was charged or added."""
    batch_scored: bool = False
    """The parts that depend on the whole rollout are in ``reward_parts``."""

    @classmethod
    def of_trajectory(
        cls, trajectory: Trajectory, *, rewards: Sequence[Mapping[str, float]] = (), weights: Sequence[float] = (),
        **known: Any,
    ) -> Record:
        """``rewards`` and ``weights`` have one entry for each turn, or none; ``known``: more fields."""
        failure, count = trajectory.failure, len(trajectory.turns)
        earnings: Sequence[Mapping[str, float] | None] = rewards or [None] * count
        each = zip(trajectory.turns, earnings, weights or [1.0] * count, strict=True)
        return cls(
            turns=tuple(replace(turn, state_rewards=earned, weight=weight) for turn, earned, weight in each),
            outcome=trajectory.outcome, counts=dict(trajectory.counts),
            failure=failure.kind if failure else None, failure_message=str(failure) if failure else None, **known)

    @classmethod
    def of(cls, sample: Any) -> Record | None:
        """The record in a host's sample; None in one of another generate hook."""
        written = sample.train_metadata or {}
        if not {"turns", "memories", "outcome", "counts"} <= written.keys():
            return None
        return cls(**written | {"turns": tuple(Turn(**turn) for turn in written["turns"]),
                                "memories": tuple(MemoryRecord(**memory) for memory in written["memories"])})

    def to_dict(self) -> dict[str, Any]:
        """For ``train_metadata``; token lists are the record's own."""
        return _shallow(self) | {
            "turns": list(map(_shallow, self.turns)), "memories": list(map(_shallow, self.memories))}

    @property
    def state_totals(self) -> list[float] | None:
        """What each turn earned by itself; None where turns earn nothing."""
        totals = [sum(turn.state_rewards.values()) for turn in self.turns if turn.state_rewards is not None]
        return totals or None


def _shallow(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


# --- into the host's Sample ---------------------------------------------------------------------------------------


def write_record(sample: Any, record: Record, answer: str, reward_key: str = "") -> Any:
    """Write the outcome into the host's Sample, whose ``Status`` is the host's enum."""
    finished = record.outcome in FINISHED
    row = record.turns[-1] if finished else PLACEHOLDER
    sample.status = sample.Status(record.outcome.value)
    sample.response = answer
    sample.train_metadata = record.to_dict()
    sample.weight_versions = list(dict.fromkeys(turn.weight_version for turn in record.turns if turn.weight_version))
    sample.tokens = list(row.tokens)
    sample.response_length = len(row.log_probs)
    sample.loss_mask = [int(finished)] * sample.response_length
    sample.rollout_log_probs = list(row.log_probs)
    if not finished:
        sample.reward, sample.remove_sample = as_reward(0.0, reward_key), True
    if hasattr(sample, "prefix_cache_info"):  # slime and vime compute their own cache metrics from it
        sample.prefix_cache_info = type(sample.prefix_cache_info)()
        for turn in (turn for turn in record.turns if turn.cached_tokens is not None):
            sample.prefix_cache_info.add({"prompt_tokens": turn.prompt_tokens, "cached_tokens": turn.cached_tokens})
    return sample


def write_scores(sample: Any, record: Record) -> None:
    """Keep how the reward of ``sample`` came about."""
    sample.train_metadata |= {name: getattr(record, name) for name in ("reward_parts", "accuracy", "batch_scored")}


def write_failure(sample: Any, kind: FailureKind, message: str, reward_key: str = "") -> None:
    """Take a trajectory that has ended out of training and of all statistics; its record keeps what it sampled."""
    if Record.of(sample) is not None:
        sample.train_metadata |= {"outcome": Outcome.FAILED, "failure": kind, "failure_message": message,
                                  "reward_parts": {}, "accuracy": None}
    sample.status = sample.Status(Outcome.FAILED.value)
    sample.loss_mask = [0] * sample.response_length
    sample.reward, sample.remove_sample = as_reward(0.0, reward_key), True


# --- a run of nothing but failures --------------------------------------------------------------------------------


class AllFailed(MemAgentError):
    """No trajectory finished and at least one failed: there is nothing to learn from."""


def require_survivors(samples: Sequence[Any], what: str) -> None:
    """Raises AllFailed, which names ``what`` they are of and the first reason, where all ``samples`` are lost.

    Hosts go on where trajectories fail. Trained on such a batch, the optimizer would still move by its momentum.
    """
    some_failed = any(sample.status.value == Outcome.FAILED for sample in samples)
    if some_failed and not any(map(ended, samples)):
        reasons = [(sample.train_metadata or {}).get("failure_message") for sample in samples]
        reason = next(filter(None, reasons), "no reason was kept")
        raise AllFailed(f"all {len(samples)} trajectories of {what} failed; the first: {reason}")
