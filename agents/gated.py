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
- reading never ends without a memory: ``finish`` before there is one goes on and counts as a fallback;
- while the question is hidden (``query_blind=1``) no turn can know that the memory holds the answer: ``finish`` is
  neither offered nor obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from . import memagent
from .interface import ReaderSettings
from .memagent import State
from .records import Generation

SKIP, UPDATE, FINISH = "skip", "update", "finish"
_AROUND = " \t\r*_`#.,:;!\"'<>[]()"
"""What models put around a word."""


@dataclass(frozen=True)
class GatedSettings(ReaderSettings):
    turn_cost: Annotated[float, Field(ge=0, le=0.9)] = 0.2


class Gated(memagent.MemAgent):
    """``AGENT=gated``"""

    Settings, memory_name = GatedSettings, "gated"
    counted = (*memagent.MemAgent.counted, "skipped", "exited", "format_fallbacks")

    def update(self, state: State, reply: Generation) -> State:
        carried = self.carried(reply)
        decision, text = split_decision(self.vocabulary.decode(carried))
        memory = self.encoded(text)
        if decision == SKIP and not memory:
            return state.plus(skipped=1)
        if decision == UPDATE:
            return self.with_memory(state, memory)
        fallback = state.plus(format_fallbacks=1)
        if decision != FINISH or self.settings.query_blind:
            return self.with_memory(fallback, carried)
        if not (memory or state.memory):
            return fallback
        ended = replace(state.plus(exited=1), next_chunk=len(state.reading.document.chunks))
        return self.with_memory(ended, memory or state.memory)

    def reply_for(self, before: str, memory: str) -> str:
        return SKIP if memory == before else f"{UPDATE}\n{memory}"


def split_decision(reply: str) -> tuple[str, str]:
    """The first line as a decision would be written, and the text behind it.

    >>> split_decision("**Update**\\nred key")
    ('update', 'red key')
    """
    line, _, rest = reply.strip().partition("\n")
    return line.strip(_AROUND).lower(), rest.strip()
