"""MemAgent: read chunk by chunk, overwrite the memory each time, answer from the memory alone.

Source: MemAgent, arXiv 2507.02259, section 2; multi-conversation rollouts, one independent conversation per chunk.

A document of chunks c0, c1, c2 gives four turns; ``m`` are memory ids exactly as sampled::

    turn 0  MEMORY  problem, c0, empty marker -> reply r0, m0 = carried(r0)
    turn 1  MEMORY  problem, c1, m0           -> reply r1, m1 = carried(r1)
    turn 2  MEMORY  problem, c2, m1           -> reply r2, m2 = carried(r2)
    turn 3  FINAL   problem, m2               -> answer

``carried`` removes thinking, control and out-of-vocabulary ids and caps the length (``Vocabulary.memory_ids``). A
reply with nothing left to carry is an empty update: it overwrites like any other, and the next prompt shows the empty
marker again.

``MEM_CARRY=reply`` carries what the released evaluation does (taskutils/memory_eval/utils/recurrent.py): thinking that
was never closed is a memory like any other, blanks around what follows closed thinking go, and a memory that was
written empty is shown as nothing, with no marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ..config import Config
from .interface import MemoryAgent, Reading
from .prompts import MEMORY, PROBLEM, SECTION, Frame, Prompts, TokenTemplate, compile_template
from .records import Generation, StopReason, TurnKind, TurnRequest
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Limits:
    """Token budgets of the replies, and how many sections are read side by side by an agent that can."""

    max_memory: int
    max_final: int
    parallel: int = 1

    @classmethod
    def of(cls, config: Config) -> Limits:
        return cls(config.mem_max_memory, config.mem_max_final, config.mem_parallel)


@dataclass(frozen=True, slots=True)
class State:
    reading: Reading
    next_chunk: int = 0
    memory: tuple[int, ...] = ()
    answer: str | None = None
    empty_updates: int = 0
    truncated_memories: int = 0


class MemAgent(MemoryAgent):
    """The overwrite agent (``AGENT=memagent``). Other readers derive from it and differ in what a reply does."""

    own_settings: Any = None
    """AGENT_ARGS as ``Settings``, in an agent of the user's."""
    settings = frozenset({"mem_carry"})
    whole_reply: bool = False
    """MEM_CARRY=reply"""
    state_type: ClassVar[type[State]] = State
    """What ``start`` makes; readers that count more derive theirs from ``State``."""

    def __init__(self, vocabulary: Vocabulary, prompts: Prompts, frame: Frame, limits: Limits) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._memory_turn: TokenTemplate = compile_template(prompts.memory, frame, vocabulary)
        self._final_turn: TokenTemplate = compile_template(prompts.final, frame, vocabulary)
        self._empty = tuple(vocabulary.encode_text(prompts.empty_memory))

    @classmethod
    def from_config(cls, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> Self:
        agent = cls(vocabulary, prompts, frame, Limits.of(config))
        agent.own_settings = cls.settings_of(config)
        agent.whole_reply = config.mem_carry == "reply"
        return agent

    def start(self, reading: Reading) -> Any:
        return self.state_type(reading)

    def requests(self, state: Any) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        if state.next_chunk < len(state.reading.document.chunks):
            return self._reading_turns(state)
        return (self._final_turn.request(TurnKind.FINAL, self._slots(state), self._limits.max_final),)

    def advance(self, state: Any, generations: Sequence[Generation]) -> Any:
        if state.next_chunk < len(state.reading.document.chunks):
            return self._after_reading(state, generations)
        (reply,) = generations
        opened = self._final_turn.thinking_open
        return replace(state, answer=self._vocabulary.answer_text(reply.token_ids, thinking_open=opened))

    def memory(self, state: Any) -> tuple[int, ...]:
        return state.memory

    def filled(self, state: Any, ids: Sequence[int]) -> Any:
        return replace(state, memory=max(tuple(ids), self._empty, key=len))

    def answer(self, state: Any) -> str:
        return state.answer or ""

    def counts(self, state: Any) -> dict[str, float]:
        document = state.reading.document
        return {
            "chunks": len(document.chunks),
            "chunks_read": state.next_chunk,
            "document_tokens": document.tokens,
            "dropped_tokens": document.dropped,
            "memory_tokens": len(state.memory),
            "empty_updates": state.empty_updates,
            "truncated_memories": state.truncated_memories,
        }

    # --- what readers differ in -------------------------------------------------------------------------------------

    def _reading_turns(self, state: Any) -> tuple[TurnRequest, ...]:
        """The round while sections are left."""
        section = state.reading.document.chunks[state.next_chunk]
        slots = self._slots(state) | {SECTION: section}
        return (self._memory_turn.request(TurnKind.MEMORY, slots, self._limits.max_memory),)

    def _after_reading(self, state: Any, generations: Sequence[Generation]) -> Any:
        (reply,) = generations
        return self._updated(state, reply, self._carried(reply), next_chunk=state.next_chunk + 1)

    def _slots(self, state: Any) -> dict[str, Sequence[int]]:
        written = self.whole_reply and state.next_chunk
        return {PROBLEM: state.reading.question_ids, MEMORY: state.memory if written else state.memory or self._empty}

    def _carried(self, reply: Generation) -> tuple[int, ...]:
        """What of a memory turn's reply may be carried."""
        if self.whole_reply:
            return tuple(self._vocabulary.reply_ids(reply.token_ids, limit=self._limits.max_memory))
        opened = self._memory_turn.thinking_open
        return tuple(self._vocabulary.memory_ids(reply.token_ids, limit=self._limits.max_memory, thinking_open=opened))

    def _updated(self, state: Any, reply: Generation, memory: tuple[int, ...], **changes: Any) -> Any:
        """The state with ``memory``, taken from ``reply``, in place of the old one."""
        return replace(
            state,
            memory=memory,
            empty_updates=state.empty_updates + (not memory),
            truncated_memories=state.truncated_memories + (reply.stop is StopReason.LENGTH),
            **changes,
        )
