"""What a trajectory leaves in ``sample.train_metadata``: written by ``rollout.generate``, read by everything else.

``Record.of(sample)`` is the only reader and ``Record.to_dict`` the only writer. The dict is plain (hosts pickle it,
save it with ``torch.save`` and replay it), its keys are the fields below; lists of tokens are shared, never copied.
A sample of another generate hook has no record.

A turn of 4 prompt and 2 sampled tokens, of which 3 prompt tokens were in the engine's prefix cache::

    {"kind": "memory", "stop": "stop", "tokens": [1, 2, 3, 4, 50, 51], "log_probs": [-0.1, -0.7], "cached_tokens": 3,
     "round": 0, "section": [0, 1, 3], ...}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from ..agents.records import Failure, FailureKind, Outcome, StopReason, Trajectory, Turn, TurnKind
from .sample import as_reward


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn as a training row: ``tokens = prompt + reply``, every reply token trained."""

    kind: TurnKind
    stop: StopReason
    tokens: list[int]
    log_probs: list[float]
    """Of the reply, one for each of its tokens."""
    cached_tokens: int | None = None
    """None where the engine does not say."""
    state_rewards: Mapping[str, float] | None = None
    """What the turn earned by itself, by name; None where turns earn nothing."""
    weight: float = 1.0
    """Factor of its advantage (MEM_TURN_WEIGHT)."""
    round: int = 0
    """Turns of one round were sampled side by side."""
    section: tuple[int, int, int] | None = None
    """The chunk that its prompt shows: its number, and where its tokens begin and end."""
    recalled: str = ""
    """The earlier memory that its prompt shows."""
    told: bool = False
    """See ``agents.records.Turn``."""

    @property
    def truncated(self) -> bool:
        return self.stop is StopReason.LENGTH

    @property
    def response_length(self) -> int:
        return len(self.log_probs)

    @property
    def prompt_tokens(self) -> int:
        return len(self.tokens) - len(self.log_probs)

    @classmethod
    def of_turn(
        cls, turn: Turn, state_rewards: Mapping[str, float] | None = None, weight: float = 1.0, recalled: str = ""
    ) -> Self:
        at = turn.section
        return cls(
            turn.kind, turn.stop, [*turn.prompt_ids, *turn.response_ids], list(turn.log_probs), turn.cached_tokens,
            state_rewards, weight, turn.round, (at.number, at.start, at.end) if at else None, recalled, turn.told,
        )


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

    turns: tuple[TurnRecord, ...]
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
        cls,
        trajectory: Trajectory,
        memories: Sequence[MemoryRecord] = (),
        states: Sequence[Mapping[str, float]] = (),
        weights: Sequence[float] = (),
        recalled: Sequence[str] = (),
        *,
        evaluation: bool = False,
        task: str = "",
    ) -> Self:
        """``states`` are the turns' own rewards, one for each turn, or none at all; ``weights`` and ``recalled``, the
        texts, likewise."""
        turns = trajectory.turns
        rewards: Sequence[Mapping[str, float] | None] = states or [None] * len(turns)
        factors, found = weights or [1.0] * len(turns), recalled or [""] * len(turns)
        failure = trajectory.failure
        return cls(
            turns=tuple(TurnRecord.of_turn(*one) for one in zip(turns, rewards, factors, found, strict=True)),
            memories=tuple(memories),
            outcome=trajectory.outcome,
            failure=failure.kind if failure else None,
            failure_message=failure.message if failure else None,
            counts=dict(trajectory.counts),
            evaluation=evaluation,
            task=task,
        )

    @classmethod
    def of(cls, sample: Any) -> Record | None:
        """The record in a host's sample; None in one of another generate hook."""
        written = sample.train_metadata or {}
        if not {"turns", "memories", "outcome", "counts"} <= written.keys():
            return None
        values = {f.name: written[f.name] for f in fields(cls) if f.name in written}
        failure = values.get("failure")
        return cls(
            **values
            | {
                "turns": tuple(_turn(turn) for turn in values["turns"]),
                "memories": tuple(MemoryRecord(**memory) for memory in values["memories"]),
                "outcome": Outcome(values["outcome"]),
                "failure": FailureKind(failure) if failure else None,
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for ``train_metadata``; token lists are the record's own."""
        values = _shallow(self)
        return values | {
            "turns": [_shallow(turn) | {"kind": turn.kind.value, "stop": turn.stop.value} for turn in self.turns],
            "memories": [_shallow(memory) for memory in self.memories],
            "outcome": self.outcome.value,
            "failure": self.failure.value if self.failure else None,
        }

    @property
    def state_totals(self) -> list[float] | None:
        """What each turn earned by itself; None where turns earn nothing."""
        named = [turn.state_rewards for turn in self.turns]
        if all(rewards is None for rewards in named):
            return None
        assert None not in named, f"{named.count(None)} of {len(named)} turns have no state rewards"
        return [sum(rewards.values()) for rewards in named if rewards is not None]


def _turn(values: Mapping[str, Any]) -> TurnRecord:
    section = values.get("section")
    typed = {"kind": TurnKind(values["kind"]), "stop": StopReason(values["stop"])}
    return TurnRecord(**{**values, **typed, "section": tuple(section) if section else None})


def _shallow(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


# --- into the host's Sample ---------------------------------------------------------------------------------------

PLACEHOLDER = TurnRecord(TurnKind.FINAL, StopReason.ABORT, [0, 0], [0.0])
"""A row that trains nothing and is legal for every host: one prompt token, one masked response token."""


def write_record(sample: Any, record: Record, trajectory: Trajectory, reward_key: str = "") -> Any:
    """Write the outcome into the host's Sample; ``sample.Status`` is the host's own enum."""
    finished = record.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED)
    row = record.turns[-1] if finished else PLACEHOLDER
    sample.status = sample.Status(record.outcome.value)
    sample.response = trajectory.answer
    sample.train_metadata = record.to_dict()
    sample.weight_versions = list(dict.fromkeys(t.weight_version for t in trajectory.turns if t.weight_version))
    sample.tokens = list(row.tokens)
    sample.response_length = row.response_length
    sample.loss_mask = [int(finished)] * row.response_length
    sample.rollout_log_probs = list(row.log_probs)
    if not finished:
        sample.reward, sample.remove_sample = as_reward(0.0, reward_key), True
    _write_cache_counts(sample, record.turns)
    return sample


def write_scores(sample: Any, record: Record) -> None:
    """Keep how the reward of ``sample`` came about."""
    sample.train_metadata |= {name: getattr(record, name) for name in ("reward_parts", "accuracy", "batch_scored")}


def write_failure(sample: Any, kind: FailureKind, message: str, reward_key: str = "") -> None:
    """Take a trajectory that has ended out of training and of all statistics; its record keeps what it sampled."""
    record = Record.of(sample)
    if record is not None:
        lost = replace(record, outcome=Outcome.FAILED, failure=kind, failure_message=message)
        sample.train_metadata = replace(lost, reward_parts={}, accuracy=None).to_dict()
    sample.status = sample.Status(Outcome.FAILED.value)
    sample.loss_mask = [0] * sample.response_length
    sample.reward, sample.remove_sample = as_reward(0.0, reward_key), True


def failed(kind: FailureKind, message: str) -> Trajectory:
    """A trajectory that never began."""
    return Trajectory((), Outcome.FAILED, failure=Failure(kind, message))


def _write_cache_counts(sample: Any, turns: Sequence[TurnRecord]) -> None:
    """Fill what slime and vime compute their own cache metrics from, under the names of their engines' answers.

    ``hasattr`` is the hosts' contract: the embedded host's Sample, and those of older hosts, have no such attribute.
    A new one replaces what an earlier attempt at this sample counted.
    """
    if hasattr(sample, "prefix_cache_info"):
        sample.prefix_cache_info = type(sample.prefix_cache_info)()
        for turn in (turn for turn in turns if turn.cached_tokens is not None):
            sample.prefix_cache_info.add({"prompt_tokens": turn.prompt_tokens, "cached_tokens": turn.cached_tokens})
