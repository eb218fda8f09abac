"""What a memory workflow is: a pure state machine over turns.

The one loop (``loop.py``) asks ``requests`` for the next prompts, samples them side by side, and hands the
generations to ``advance``; an empty tuple of requests ends the trajectory. Agents never see a server, a host or an
event loop, so training, evaluation and serving run the very same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..rewards.memory_state import Step
from .chunking import Chunks
from .records import Generation, Trajectory, TurnRequest


@dataclass(frozen=True, slots=True)
class Reading:
    """One question about one document, in token ids."""

    question_ids: Sequence[int]
    document: Chunks


class MemoryAgent(Protocol):
    """A workflow; ``State`` is the agent's own frozen record."""

    slow: bool
    """Whether ``advance`` computes so long (a model of its own) that other trajectories must not wait for it."""

    def start(self, reading: Reading) -> Any:
        """The state before the first turn."""

    def requests(self, state: Any) -> tuple[TurnRequest, ...]:
        """Prompts of the next turn: several are sampled side by side, none ends the trajectory."""

    def advance(self, state: Any, generations: Sequence[Generation]) -> Any:
        """The state after the generations of ``requests(state)``, in the same order."""

    def memory(self, state: Any) -> Sequence[int]:
        """The memory that the next turn will be shown, in token ids; empty where that turn will be told of none."""

    def answer(self, state: Any) -> str:
        """The decoded final reply, thinking removed."""

    def counts(self, state: Any) -> dict[str, float]:
        """Metrics of this trajectory (see ``Trajectory.counts``)."""

    def state_steps(self, trajectory: Trajectory) -> Sequence[Step]:
        """The memory turns of a finished trajectory as their own rewards see them; none where they earn none."""
