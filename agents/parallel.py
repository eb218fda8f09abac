"""Parallel reading: several chunks at once, each beside the same memory, then one turn that merges what they gave.

Source of the idea: the parallel read, select and merge of PI-Mem (arXiv 2608.03048).

A round reads the next ``width`` chunks; each reply is the memory as it would be after that chunk alone, or says that
the chunk adds nothing. Replies that say so, are empty (a fallback), or repeat the memory are left out, and then::

    useful replies   memory after the round
    none             as before
    one              that reply: plain reading, which has no other; no further turn
    several          the reply of a merge turn, which is shown the memory and these replies
                     (where that is empty, the last of them, which plain reading would have kept: a fallback)

Invariants:
- chunks are read in order, each once;
- n chunks, K at a time, take at most about 2n / K rounds before the final turn: never more than the n of
  plain reading, and fewer wherever K >= 3 and n >= 3, even if every reply is useful;
- a merge prompt holds at most K replies of ``MEM_MAX_MEMORY`` tokens beside the memory and the question;
- memories are sampled ids, and so are the replies shown to the merge turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from ..config import Config
from . import memagent
from .interface import ReaderSettings
from .prompts import NOTES, Frame, Prompts, compile_template
from .records import Generation, StopReason, TurnKind, TurnRequest
from .vocabulary import Vocabulary

MOST = 16
"""Chunks read side by side."""
BETWEEN = "\n\n"
"""Between two replies in a merge prompt."""
_AROUND = " \t\r\n*_`.:!\"'"


@dataclass(frozen=True, slots=True)
class State(memagent.State):
    notes: tuple[tuple[int, ...], ...] = ()
    """Useful replies that wait to be merged; at least two, or none."""


@dataclass(frozen=True)
class ParallelSettings(ReaderSettings):
    width: Annotated[int, Field(ge=1, le=MOST)] = 4
    """Chunks that are read side by side; from 3 on it takes fewer rounds."""


class Parallel(memagent.MemAgent):
    """``AGENT=parallel``"""

    Settings, state_type, memory_name = ParallelSettings, State, "note"
    counted = (*memagent.MemAgent.counted, "useful_notes", "merges", "format_fallbacks")

    def __init__(self, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> None:
        super().__init__(config, vocabulary, prompts, frame)
        self.merge_turn = compile_template(prompts["merge"], frame, vocabulary)
        self._between = vocabulary.encode_text(BETWEEN)
        self._nothing = {"", "nothing", prompts["empty_memory"].strip(_AROUND).lower()}

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if not state.notes:
            return super().requests(state)
        notes = [i for note in state.notes for i in (*self._between, *note)][len(self._between) :]
        slots = self.slots(state) | {NOTES: notes}
        return (self.merge_turn.request(TurnKind.MEMORY, slots, self.max_memory),)

    def reading_turns(self, state: State) -> tuple[TurnRequest, ...]:
        end = min(state.next_chunk + self.settings.width, len(state.reading.document.chunks))
        return tuple(self.read_chunk(state, number) for number in range(state.next_chunk, end))

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        if not (state.notes or state.reads_on):
            return super().advance(state, generations)
        state = state.plus(truncated_memories=sum(reply.stop is StopReason.LENGTH for reply in generations))
        return self._merged(state, *generations) if state.notes else self._noted(state, generations)

    def _noted(self, state: State, generations: Sequence[Generation]) -> State:
        notes = [self.carried(reply) for reply in generations]
        texts = [self.vocabulary.decode(note).strip() for note in notes]
        useful = tuple(note for note, text in zip(notes, texts, strict=True)
                       if note != state.memory and text.strip(_AROUND).lower() not in self._nothing)
        read = len(generations)
        state = state.plus(chunks_read=read, useful_notes=len(useful), format_fallbacks=texts.count(""))
        change: Any = {"memory": useful[0]} if len(useful) == 1 else {"notes": useful}
        return replace(state, next_chunk=state.next_chunk + read, **change)

    def _merged(self, state: State, reply: Generation) -> State:
        merged = self.carried(reply)
        return replace(state.plus(merges=1, format_fallbacks=not merged), memory=merged or state.notes[-1], notes=())
