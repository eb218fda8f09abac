"""What a memory agent is: a pure state machine over turns.

The one loop (``rollout.run_trajectory``) asks ``requests`` for the next prompts, samples them side by side, and hands
the generations to ``advance``; an empty tuple of requests ends the trajectory. Agents never see a server, a host or an
event loop, so training, evaluation and serving run the same code. The loop counts turns, rounds, chunks and tokens by
itself, so an agent counts only what is its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ..config import Config
from ..system.plugins import NoSettings
from .documents import Chunks, split_chunks
from .prompts import Frame, Prompts
from .records import FailureKind, Generation, Message, Trajectory, TurnFailed, TurnRequest
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Reading:
    """One question about one document, in token ids; no chunks where there is no document."""

    question_ids: Sequence[int]
    document: Chunks
    prefix_ids: Sequence[int] = ()
    """What the final reply goes on from: the last ids of the FINAL turn's prompt, whatever the agent (``rollout``)."""
    reply_tokens: int = 0
    """Most tokens of the final reply; 0: the agent's own budget."""
    before: tuple[Message, ...] = ()
    """The row's messages before the question, system message first; for agents of ``shows_messages``."""


@dataclass(frozen=True)
class ReaderSettings:
    """AGENT_ARGS of every agent that reads chunk by chunk."""

    query_blind: bool = False
    """Hide the question from all turns but the final one, so that a memory serves questions that are not known yet."""
    whole_sentences: bool = False
    """End a chunk behind the last sentence that it has room for. One sentence may have up to MEM_CHUNK_TOKENS."""
    least_chunks: Annotated[int, Field(ge=0)] = 0
    """Cut a short document into about so many chunks, of at least 8 tokens, in place of fewer of MEM_CHUNK_TOKENS:
    what is dense is then read in smaller pieces."""
    turn_cost: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    """Share of a right answer's training reward that reading every chunk costs; each round pays its part."""


class MemoryAgent(ABC):
    """Derive from this, or from ``memagent.MemAgent``; a state is the agent's own frozen record.

    Made once per process and shared by all trajectories, so it keeps nothing of any of them.
    """

    Settings: ClassVar[type] = NoSettings
    """AGENT_ARGS: a frozen dataclass with defaults; its ``__post_init__`` refuses what cannot work together."""
    needs_document: ClassVar[bool] = True
    """Whether it reads a document; one that does not is asked the question alone."""
    shows_messages: ClassVar[bool] = False
    """Whether it shows the messages that a row has before its question."""
    own_prompts: ClassVar[Prompts] = {}
    """Templates that ``prompts.yaml`` lacks, in its format; MEM_PROMPTS may replace them by name."""

    @abstractmethod
    def __init__(self, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> None:
        """The agent for one tokenizer. Raises ConfigError where it cannot work."""

    @abstractmethod
    def start(self, reading: Reading) -> Any:
        """The state before the first turn."""

    @abstractmethod
    def requests(self, state: Any) -> tuple[TurnRequest, ...]:
        """Prompts of the next turn: several are sampled side by side, none ends the trajectory."""

    @abstractmethod
    def advance(self, state: Any, generations: Sequence[Generation]) -> Any:
        """The state after the generations of ``requests(state)``, in the same order."""

    def split(self, document: Sequence[int], chunk_tokens: int, max_chunks: int | None) -> Chunks:
        """The chunks that it reads a document in."""
        return split_chunks(document, chunk_tokens, max_chunks)

    def answer(self, state: Any) -> str:
        """The decoded final reply, thinking removed."""
        return state.answer or ""

    def memory(self, state: Any) -> Sequence[int]:
        """The memory that the next turn will be shown, in token ids."""
        return ()

    def filled(self, state: Any, ids: Sequence[int]) -> Any:
        """``state`` with every memory that the next turn shows replaced by ``ids``, or by the empty marker if that is
        longer: the turn's prompts at their longest (``agents.longest_turn``)."""
        return state

    def reply_for(self, before: str, memory: str) -> str:
        """The reply of a memory turn that turns the memory ``before`` into ``memory``; both may be empty.

        Raises:
            TurnFailed: its replies follow no such rule, so LOSS=sft needs them from the rows.
        """
        raise TurnFailed(FailureKind.NO_REPLY, "replies of this AGENT are made by no rule; the row has to give them "
                         "in metadata.replies")

    def counts(self, state: Any) -> dict[str, float]:
        """Metrics of the agent's own, beside those of the loop."""
        return {}

    def turn_rewards(
        self, trajectory: Trajectory, golds: Sequence[str], metadata: Mapping[str, Any]
    ) -> list[Mapping[str, float]]:
        """What every turn earned by itself, by name; empty where turns earn nothing. ``metadata`` is the row's."""
        return []

    def turn_weights(self, trajectory: Trajectory, golds: Sequence[str]) -> list[float]:
        """The factor of every turn's advantage; empty where all count alike."""
        return []
