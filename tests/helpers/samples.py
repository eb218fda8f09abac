"""Samples as ``rollout.generate`` leaves them, and as another generate hook would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mem_agent.agents.records import FailureKind, Outcome, StopReason, Turn, TurnKind
from mem_agent.hooks.sample import MemoryRecord, Record, Sample


def turn(reply: int = 2, kind: str = "memory", prompt: int = 4, stop: str = "stop", **fields: Any) -> Turn:
    """A turn of ``prompt`` + ``reply`` tokens 0, 1, 2 ...; the reply's log-probs are -0.1, -0.2 ..."""
    log_probs = [-(position + 1) / 10 for position in range(reply)]
    return Turn(TurnKind(kind), list(range(prompt + reply)), prompt, log_probs, StopReason(stop), **fields)


def turns_of(replies: Sequence[int], **fields: Any) -> tuple[Turn, ...]:
    """Memory turns and a final one, with replies of these lengths."""
    kinds = ["memory"] * (len(replies) - 1) + ["final"]
    return tuple(turn(reply, kind, **fields) for reply, kind in zip(replies, kinds, strict=True)) if replies else ()


def trajectory(
    turns: Sequence[Turn] = (), status: str = "completed", *, failure: str | None = None,
    memories: Sequence[MemoryRecord] = (), counts: dict[str, float] | None = None, reward: Any = 1.0,
    record: dict[str, Any] | None = None, **fields: Any,
) -> Sample:
    """A scored Sample with a record; ``record`` are further fields of that."""
    written = Record(
        turns=tuple(turns), memories=tuple(memories), outcome=Outcome(status), counts=counts or {},
        failure=FailureKind(failure) if failure else None, **(record or {}),
    )
    return Sample(reward=reward, status=Sample.Status(status), train_metadata=written.to_dict(), **fields)


def foreign(status: str = "completed", reward: Any = 0.5, **fields: Any) -> Sample:
    """A Sample of another generate hook."""
    return Sample(status=Sample.Status(status), reward=reward, **{"tokens": [1, 2], "response_length": 1, **fields})
