r"""Rule-based recall: MemAgent's reading, beside whose memory every turn shows the one that is likest the question.

Source: the ablation of ReMemR1, arXiv 2509.23040 (rule-based callback), as its released evaluation runs it
(taskutils/memory_eval/utils/recurrent_rag.py). The prompts are MemAgent's; what is recalled stands in the memory's
slot, behind the memory and a blank line. ``m`` are replies, stripped; ``N`` is the marker of an empty memory::

    turn 1  MEMORY  problem, c1, N            -> m1     history N m1       r1 = likest of N m1
    turn 2  MEMORY  problem, c2, m1 | r1      -> m2     history N m1 m2    r2 = likest of N m1 m2
    turn 3  FINAL   problem, m2 | r2          -> answer

Likeness is Jaccard's: words that question and memory share, over words of either, in lower case and without
punctuation. Where no word is shared, the marker of nothing recalled is shown.

Invariants: among equals the older one is shown (the release leaves that to the order of a Python set); what is shown
is at most two memories and the blank line. The question stays the same, so of the history the likest alone is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..config import Config, ConfigError
from . import memagent
from .interface import Reading
from .prompts import MEMORY, Frame, Prompts
from .records import Generation
from .vocabulary import Vocabulary

_PUNCTUATION = re.compile(r"[^\w\s]")


class Likest(NamedTuple):
    """A memory, and how like the question it is."""

    likeness: float
    ids: tuple[int, ...]


NONE = Likest(0.0, ())


@dataclass(frozen=True, slots=True)
class State(memagent.State):
    likest: Likest = NONE
    """Of the history."""
    recalled: tuple[int, ...] = ()
    recall_hits: int = 0


class RuleRecall(memagent.MemAgent):
    """``AGENT=rule_recall``"""

    state_type = State

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        if config.mem_query_blind:
            raise ConfigError("MEM_QUERY_BLIND=1: AGENT=rule_recall looks memories up by the question; unset one")

    def __init__(self, vocabulary: Vocabulary, prompts: Prompts, frame: Frame, limits: memagent.Limits) -> None:
        super().__init__(vocabulary, prompts, frame, limits)
        self._no_recall = tuple(vocabulary.encode_text(prompts.no_recall))
        self._between = tuple(vocabulary.encode_markup("\n\n"))
        self._marker = (prompts.empty_memory, self._empty)

    def start(self, reading: Reading) -> State:
        return State(reading, likest=self._likest(reading, NONE, *self._marker))

    def recalled(self, state: State) -> tuple[int, ...]:
        return state.recalled

    def filled(self, state: State, ids: Sequence[int]) -> State:
        longest = max(tuple(ids), self._no_recall, self._empty, key=len)
        return replace(super().filled(state, ids), recalled=longest)

    def _slots(self, state: State) -> dict[str, Sequence[int]]:
        slots = super()._slots(state)
        if not state.next_chunk:
            return slots
        return slots | {MEMORY: (*state.memory, *self._between, *(state.recalled or self._no_recall))}

    def _after_reading(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        carried = self._carried(reply)
        text = self._vocabulary.decode(carried)
        start = len(text) - len(text.lstrip())
        memory = tuple(self._vocabulary.part_ids(carried, start, start + len(text.strip())))
        found = self._likest(state.reading, state.likest, text, memory)
        return self._updated(
            state, reply, memory, next_chunk=state.next_chunk + 1, likest=found, recalled=found.ids,
            recall_hits=state.recall_hits + bool(found.ids),
        )

    def _likest(self, reading: Reading, before: Likest, text: str, ids: tuple[int, ...]) -> Likest:
        return likest(self._vocabulary.decode(reading.question_ids), before, text, ids)

    def counts(self, state: State) -> dict[str, float]:
        return super().counts(state) | {"recall_hits": state.recall_hits}


def likest(question: str, before: Likest, text: str, ids: tuple[int, ...]) -> Likest:
    """The memory of ``text`` where it is liker the question than the likest ``before``."""
    likeness = _jaccard(_words(question), _words(text))
    return Likest(likeness, ids) if likeness > before.likeness else before


def _words(text: str) -> frozenset[str]:
    return frozenset(_PUNCTUATION.sub("", text.lower()).split())


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    together = one | other
    return len(one & other) / len(together) if together else 0.0
