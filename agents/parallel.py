"""Parallel reading: several chunks at once, each beside the same memory, then one turn that merges what they gave.

Source of the idea: the parallel read, select and merge of PI-Mem (arXiv 2608.03048).

A round reads the next ``MEM_PARALLEL`` chunks; each reply is the memory as it would be after that chunk alone, or says
that the chunk adds nothing. Replies that say so, are empty (a fallback), or repeat the memory are left out, and then::

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from . import memagent
from .prompts import MEMORY, NOTES, PROBLEM, SECTION, Frame, Prompts, Wording, compile_template
from .records import Generation, StopReason, TurnKind, TurnRequest
from .vocabulary import Vocabulary

NOTHING = "nothing"
_AROUND = " \t\r\n*_`.:!\"'"
BETWEEN = "\n\n"
"""Between two replies in a merge prompt."""


@dataclass(frozen=True, slots=True)
class State(memagent.State):
    notes: tuple[tuple[int, ...], ...] = ()
    """Useful replies that wait to be merged; at least two, or none."""
    useful_notes: int = 0
    merges: int = 0
    format_fallbacks: int = 0


class Parallel(memagent.MemAgent):
    """``AGENT=parallel``"""

    state_type = State
    settings = frozenset({"mem_parallel"})

    own_wording: ClassVar[Mapping[str, Wording]] = {
        "note": Wording(
            "You are reading one section of a long document in order to solve a problem; other readers have the "
            "sections beside it. Rewrite the memory for this section: keep every old detail that may still matter, "
            "add what the section contributes to the problem, leave out everything else. If the section contributes "
            "nothing, reply with the single word: nothing.",
            (PROBLEM, SECTION, MEMORY),
            "Updated memory:",
            blind="You are reading one section of a long document; other readers have the sections beside it, and "
            "what will be asked about the document is not known yet. Rewrite the memory for this section: keep the "
            "old details and add those of the section that a question could be about. If there are none, reply with "
            "the single word: nothing.",
        ),
        "merge": Wording(
            "Several readers of a long document have each rewritten the same memory for a section of their own, in "
            "order to solve a problem. Merge what they wrote, in the order of the sections, into one memory: keep "
            "every detail that may still matter, once, and leave out everything else. When you answer, this memory "
            "is all you will have.",
            (PROBLEM, MEMORY, NOTES),
            "Merged memory:",
            blind="Several readers of a long document have each rewritten the same memory for a section of their own; "
            "what will be asked about the document is not known yet. Merge what they wrote, in the order of the "
            "sections, into one memory: keep, once, every detail that a question could be about. When you are asked, "
            "this memory is all you will have.",
        ),
    }

    def __init__(self, vocabulary: Vocabulary, prompts: Prompts, frame: Frame, limits: memagent.Limits) -> None:
        super().__init__(vocabulary, replace(prompts, memory=prompts.own["note"]), frame, limits)
        self._merge_turn = compile_template(prompts.own["merge"], frame, vocabulary)
        self._between = tuple(vocabulary.encode_markup(BETWEEN))
        self._nothing = {NOTHING, prompts.empty_memory.strip(_AROUND).lower()}

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if not state.notes:
            return super().requests(state)
        assert 2 <= len(state.notes) <= self._limits.parallel, len(state.notes)
        notes = [i for note in state.notes for i in (*self._between, *note)][len(self._between) :]
        slots = self._slots(state) | {NOTES: notes}
        return (self._merge_turn.request(TurnKind.MEMORY, slots, self._limits.max_memory),)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        return self._merged(state, generations) if state.notes else super().advance(state, generations)

    def counts(self, state: State) -> dict[str, float]:
        names = ("useful_notes", "merges", "format_fallbacks")
        return super().counts(state) | {name: getattr(state, name) for name in names}

    def _reading_turns(self, state: State) -> tuple[TurnRequest, ...]:
        chunks = state.reading.document.chunks[state.next_chunk : state.next_chunk + self._limits.parallel]
        slots = (self._slots(state) | {SECTION: chunk} for chunk in chunks)
        return tuple(self._memory_turn.request(TurnKind.MEMORY, one, self._limits.max_memory) for one in slots)

    def _after_reading(self, state: State, generations: Sequence[Generation]) -> State:
        carried = [self._carried(reply) for reply in generations]
        texts = [self._vocabulary.decode(note).strip() for note in carried]
        useful = tuple(
            note for note, text in zip(carried, texts, strict=True)
            if note != state.memory and text.strip(_AROUND).lower() not in self._nothing | {""}
        )
        single = len(useful) == 1
        return replace(
            state,
            next_chunk=state.next_chunk + len(generations),
            memory=useful[0] if single else state.memory,
            notes=() if single else useful,
            useful_notes=state.useful_notes + len(useful),
            format_fallbacks=state.format_fallbacks + texts.count(""),
            truncated_memories=state.truncated_memories + sum(g.stop is StopReason.LENGTH for g in generations),
        )

    def _merged(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        opened = self._merge_turn.thinking_open
        merged = self._vocabulary.memory_ids(reply.token_ids, limit=self._limits.max_memory, thinking_open=opened)
        return self._updated(
            state,
            reply,
            tuple(merged) or state.notes[-1],
            notes=(),
            merges=state.merges + 1,
            format_fallbacks=state.format_fallbacks + (not merged),
        )
