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

``AGENT_ARGS="carry=reply"`` carries what the released evaluation does (taskutils/memory_eval/utils/recurrent.py):
a reply whose thinking is never closed is carried whole, blanks around the text after closed thinking are stripped, and
an empty memory is shown as nothing, without the marker.

Other readers derive from ``MemAgent``: ``update`` says what a reply does to the state, ``slots`` what the next prompt
shows, ``reading_turns`` which chunks are read next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, ClassVar, Literal, Self

from ..config import Config
from ..system.plugins import parse_settings
from .documents import Chunks, split_chunks, split_sentences
from .interface import MemoryAgent, ReaderSettings, Reading
from .prompts import MEMORY, PROBLEM, SECTION, Frame, Prompts, compile_template
from .records import Generation, StopReason, TurnKind, TurnRequest
from .vocabulary import Vocabulary

LEAST_TOKENS = 8
"""Of the smaller chunks of ``least_chunks``."""


@dataclass(frozen=True, slots=True)
class State:
    reading: Reading
    next_chunk: int = 0
    memory: tuple[int, ...] = ()
    answer: str | None = None
    counted: Counter[str] = field(default_factory=Counter)
    """What ``MemAgent.counted`` names."""

    @property
    def reads_on(self) -> bool:
        return self.next_chunk < len(self.reading.document.chunks)

    def plus(self, **counts: int) -> Self:
        """With so much more counted."""
        return replace(self, counted=self.counted + Counter(counts))


@dataclass(frozen=True)
class CarrySettings(ReaderSettings):
    carry: Literal["memory", "reply"] = "memory"
    """Which part of a reply the next turn shows: its memory, or everything that the released code carries."""


class MemAgent(MemoryAgent):
    """The overwrite agent (``AGENT=memagent``)."""

    Settings: ClassVar[type] = CarrySettings
    state_type: ClassVar[type] = State
    memory_name: ClassVar[str] = "memory"
    final_name: ClassVar[str] = "final"
    """Names of its turns' wording."""
    counted: ClassVar[tuple[str, ...]] = ("chunks_read", "empty_updates", "truncated_memories")
    """Metrics, by the names under which states count them."""

    def __init__(self, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> None:
        self.settings: Any = parse_settings(self.Settings, config.agent_args, "AGENT_ARGS")
        self.vocabulary = vocabulary
        # Token budgets of the replies; a memory is as long as the reply that it comes from.
        self.max_memory, self.max_final = config.mem_max_memory, config.mem_max_final
        self.memory_turn = compile_template(prompts[self.memory_name], frame, vocabulary)
        self.final_turn = compile_template(prompts[self.final_name], frame, vocabulary)
        self.empty = tuple(vocabulary.encode_text(prompts["empty_memory"]))
        self.carries_reply = getattr(self.settings, "carry", "memory") == "reply"

    def split(self, document: Sequence[int], chunk_tokens: int, max_chunks: int | None) -> Chunks:
        own = self.settings if isinstance(self.settings, ReaderSettings) else ReaderSettings()
        most_tokens = chunk_tokens
        if own.least_chunks:
            chunk_tokens = min(chunk_tokens, max(LEAST_TOKENS, ceil(len(document) / own.least_chunks)))
        if own.whole_sentences:
            ends = self.vocabulary.sentence_ends(document)
            return split_sentences(document, chunk_tokens, most_tokens, max_chunks, ends)
        return split_chunks(document, chunk_tokens, max_chunks)

    def start(self, reading: Reading) -> Any:
        return self.state_type(reading)

    def requests(self, state: Any) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        if state.reads_on:
            return self.reading_turns(state)
        return (self.final_turn.request(TurnKind.FINAL, self.slots(state), self.max_final),)

    def advance(self, state: Any, generations: Sequence[Generation]) -> Any:
        (reply,) = generations
        if state.reads_on:
            read = state.plus(chunks_read=1, truncated_memories=reply.stop is StopReason.LENGTH)
            return self.update(replace(read, next_chunk=state.next_chunk + 1), reply)
        opened = self.final_turn.thinking_open
        return replace(state, answer=self.vocabulary.answer_text(reply.token_ids, thinking_open=opened))

    def memory(self, state: Any) -> tuple[int, ...]:
        return state.memory

    def filled(self, state: Any, ids: Sequence[int]) -> Any:
        return replace(state, memory=max(tuple(ids), self.empty, key=len))

    def reply_for(self, before: str, memory: str) -> str:
        if (self.memory_name, type(self).update) != (MemAgent.memory_name, MemAgent.update):  # of another form
            return super().reply_for(before, memory)
        return memory or self.vocabulary.decode(self.empty)

    def counts(self, state: Any) -> dict[str, float]:
        return {name: state.counted[name] for name in self.counted}

    # --- what readers differ in -------------------------------------------------------------------------------------

    def reading_turns(self, state: Any) -> tuple[TurnRequest, ...]:
        """The round while chunks are left."""
        return (self.read_chunk(state, state.next_chunk),)

    def read_chunk(self, state: Any, number: int) -> TurnRequest:
        """The memory turn that shows chunk ``number``."""
        slots = self.slots(state) | {SECTION: state.reading.document.chunks[number]}
        return self.memory_turn.request(TurnKind.MEMORY, slots, self.max_memory, number)

    def slots(self, state: Any) -> dict[str, Sequence[int]]:
        """The token ids of every slot but the section's."""
        written = self.carries_reply and state.next_chunk
        return {PROBLEM: state.reading.question_ids, MEMORY: state.memory if written else state.memory or self.empty}

    def update(self, state: Any, reply: Generation) -> Any:
        """The state after the reply of one memory turn, whose chunk ``state`` counts as read."""
        return self.with_memory(state, self.carried(reply))

    def with_memory(self, state: Any, memory: tuple[int, ...]) -> Any:
        return replace(state.plus(empty_updates=not memory), memory=memory)

    def carried(self, reply: Generation) -> tuple[int, ...]:
        """The part of a memory turn's reply that may be carried, at most ``max_memory`` ids."""
        if self.carries_reply:
            _, closed, rest = self.vocabulary.reply_text(reply.token_ids).rpartition("</think>")
            return self.encoded(rest.strip() if closed else rest)
        opened = self.memory_turn.thinking_open
        return tuple(self.vocabulary.memory_ids(reply.token_ids, limit=self.max_memory, thinking_open=opened))

    def said(self, reply: Generation) -> str:
        """A memory turn's reply as text, thinking removed, stripped."""
        return self.vocabulary.answer_text(reply.token_ids, thinking_open=self.memory_turn.thinking_open)

    def encoded(self, text: str) -> tuple[int, ...]:
        """A memory from text."""
        return tuple(self.vocabulary.encode_text(text)[: self.max_memory])
