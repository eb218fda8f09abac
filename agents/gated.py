"""Gated reading: every reply decides first whether the memory changes and whether reading goes on.

Sources of the idea: the update and exit gates of GRU-Mem (arXiv 2602.10560), the early stop of InfMem (arXiv
2602.02704). Here a gate is a word that the policy samples, so the outcome reward trains it like every other token.

The first line of a reply, without case and punctuation, is a decision::

    reply                  memory           reading
    skip                   kept             goes on
    update, new memory     the new memory   goes on
    finish, new memory     the new memory   ends
    finish                 kept             ends
    anything else          the reply        goes on: plain reading, counted as a fallback

Invariants:
- chunks are read in order, each once, up to the one whose turn ends the reading; so no document takes more turns than
  plain reading, and one that is finished before its last chunk takes fewer;
- a memory is a run of sampled ids: those behind the decision's line, or all of them;
- reading never ends without a memory: ``finish`` before there is one goes on and counts as a fallback;
- while the question is hidden (``MEM_QUERY_BLIND``) no turn can know that the memory holds the answer: ``finish`` is
  neither offered nor obeyed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from . import memagent
from .prompts import MEMORY, PROBLEM, SECTION, Frame, Prompts, Wording
from .records import Generation
from .vocabulary import Vocabulary

SKIP, UPDATE, FINISH = "skip", "update", "finish"
_AROUND = " \t\r*_`#.,:;!\"'<>[]()"
"""What models put around a word."""
_LONGEST_LINE = 16
"""Tokens; a longer first line is no decision."""

_SKIP = "`skip` if the section adds nothing, and nothing else in the reply;\n"
_UPDATE = "`update` and, from the next line on, the whole new memory, with every old detail that may still matter;\n"
_FINISH = (
    "`finish` once the problem can be solved from the memory alone and no further section is needed; if this section "
    "has to be added to the memory for that, with the whole new memory from the next line on.\n"
)


@dataclass(frozen=True, slots=True)
class State(memagent.State):
    skipped: int = 0
    exited_after: int = 0
    """Chunks read when the policy ended the reading; 0 while it has not."""
    format_fallbacks: int = 0


class Gated(memagent.MemAgent):
    """``AGENT=gated``"""

    state_type = State
    turn_cost = 0.2
    settings = frozenset()

    own_wording: ClassVar[Mapping[str, Wording]] = {
        "gated": Wording(
            "You are reading a long document one section at a time in order to solve a problem, and keep a memory, "
            "which is all you will have when you answer. Begin your reply with one of three words on a line of its "
            "own:\n" + _SKIP + _UPDATE + _FINISH.rstrip(),
            (PROBLEM, SECTION, MEMORY),
            "Reply:",
            blind="You are reading a long document one section at a time; what you will be asked about it is not "
            "known yet, and your memory is all you will have then. Begin your reply with one of two words on a line "
            "of its own:\n" + _SKIP + _UPDATE.rstrip(),
        )
    }

    def __init__(self, vocabulary: Vocabulary, prompts: Prompts, frame: Frame, limits: memagent.Limits) -> None:
        super().__init__(vocabulary, replace(prompts, memory=prompts.own["gated"]), frame, limits)
        self._decisions = (SKIP, UPDATE, FINISH) if PROBLEM in self._memory_turn.slots else (SKIP, UPDATE)

    def _after_reading(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        carried = self._carried(reply)
        decision, memory = split_decision(self._vocabulary, carried, self._decisions)
        done = state.next_chunk + 1
        if decision == SKIP and not memory:
            return replace(state, next_chunk=done, skipped=state.skipped + 1)
        if decision == UPDATE:
            return self._updated(state, reply, memory, next_chunk=done)
        if decision == FINISH and (memory or state.memory):
            ended = replace(state, next_chunk=len(state.reading.document.chunks), exited_after=done)
            return self._updated(ended, reply, memory) if memory else ended
        fallbacks = state.format_fallbacks + 1
        if decision == FINISH:
            return replace(state, next_chunk=done, format_fallbacks=fallbacks)
        return self._updated(state, reply, carried, next_chunk=done, format_fallbacks=fallbacks)

    def counts(self, state: State) -> dict[str, float]:
        return super().counts(state) | {
            "chunks_read": state.exited_after or state.next_chunk,
            "skipped": state.skipped,
            "exited": float(state.exited_after > 0),
            "format_fallbacks": state.format_fallbacks,
        }


def split_decision(
    vocabulary: Vocabulary, ids: Sequence[int], decisions: Sequence[str]
) -> tuple[str, tuple[int, ...]]:
    """The decision that ``ids`` begin with and the ids behind its line; an empty decision and no ids if there is none.

    Example::

        "update\\nred key" -> "update", ids of "red key"
        "**Skip.**"       -> "skip", ()
        "update red key"  -> "", ()
    """
    for end in range(1, min(len(ids), _LONGEST_LINE) + 1):
        line, newline, behind = vocabulary.decode(ids[:end]).lstrip().partition("\n")
        if newline or end == len(ids):
            word = line.strip(_AROUND).lower()
            # A token that holds both the line's end and text behind it cannot be split.
            if word not in decisions or behind.strip():
                return "", ()
            memory = tuple(ids[end:])
            return word, memory if vocabulary.decode(memory).strip() else ()
    return "", ()
