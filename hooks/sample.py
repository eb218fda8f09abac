"""The embedded host's Sample: the fields of slime's and vime's that the hooks and this host use, under their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


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
    reward: float | None = None
    status: Status = Status.PENDING
    remove_sample: bool = False
    train_metadata: dict[str, Any] | None = None
    weight_versions: list[str] = field(default_factory=list)
