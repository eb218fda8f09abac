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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .interface import Reading
from .prompts import MEMORY, OVERWRITE, PROBLEM, SECTION, Prompts, TokenTemplate, compile_template
from .records import Generation, StopReason, TurnKind, TurnRequest
from .vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Limits:
    """Token budgets of the replies."""

    max_memory: int
    max_final: int


@dataclass(frozen=True, slots=True)
class State:
    reading: Reading
    next_chunk: int = 0
    memory: tuple[int, ...] = ()
    answer: str | None = None
    empty_updates: int = 0
    truncated_memories: int = 0


class MemAgent:
    """The overwrite agent (``AGENT=memagent``)."""

    wording = OVERWRITE

    def __init__(self, vocabulary: Vocabulary, prompts: Prompts, frame, limits: Limits) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._memory_turn: TokenTemplate = compile_template(prompts.memory, frame, vocabulary)
        self._final_turn: TokenTemplate = compile_template(prompts.final, frame, vocabulary)
        self._empty = tuple(vocabulary.encode_text(prompts.empty_memory))

    def start(self, reading: Reading) -> State:
        assert reading.document.chunks, "a reading has at least one chunk"
        return State(reading)

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        slots = {PROBLEM: state.reading.question_ids, MEMORY: state.memory or self._empty}
        chunks = state.reading.document.chunks
        if state.next_chunk < len(chunks):
            prompt = self._memory_turn.fill(slots | {SECTION: chunks[state.next_chunk]})
            return (TurnRequest(TurnKind.MEMORY, prompt, self._limits.max_memory),)
        return (TurnRequest(TurnKind.FINAL, self._final_turn.fill(slots), self._limits.max_final),)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        if state.next_chunk == len(state.reading.document.chunks):
            opened = self._final_turn.thinking_open
            return replace(state, answer=self._vocabulary.answer_text(reply.token_ids, thinking_open=opened))
        memory = self._vocabulary.memory_ids(
            reply.token_ids, limit=self._limits.max_memory, thinking_open=self._memory_turn.thinking_open
        )
        return replace(
            state,
            next_chunk=state.next_chunk + 1,
            memory=tuple(memory),
            empty_updates=state.empty_updates + (not memory),
            truncated_memories=state.truncated_memories + (reply.stop is StopReason.LENGTH),
        )

    def memory(self, state: State) -> tuple[int, ...]:
        return state.memory

    def answer(self, state: State) -> str:
        return state.answer or ""

    def counts(self, state: State) -> dict[str, float]:
        document = state.reading.document
        return {
            "chunks": len(document.chunks),
            "document_tokens": document.tokens,
            "dropped_tokens": document.dropped,
            "memory_tokens": len(state.memory),
            "empty_updates": state.empty_updates,
            "truncated_memories": state.truncated_memories,
        }
