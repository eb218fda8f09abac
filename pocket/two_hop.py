"""The two-hop pocket task: which fact is needed is told only after the facts have gone by.

Lines are those of ``task.py``, four tokens each. The first chunks state one fact each about different kinds, among
filler; the last chunk points at one of the kinds (``wanted fruit.``). The question is always ``Which wanted?`` and
the answer the thing of the kind that the pointer names, so the fact that is needed first comes after the one needed
second. With chunks of two lines and one fact::

    tool axe.       Rain fell.        a memory of one fact can keep this one ...
    Bells rang.     fruit apple.      ... or this one
    wanted tool.    Shops closed.     and learns here which it should have been

A memory that holds ``kept`` of the ``stated`` facts has the right one ``kept / stated`` of the time, whatever its
policy (``ceiling``): the pointed kind is drawn independently of where the facts stand. Who can ask for an earlier
memory needs no luck. Everything is a function of ``(seed, index)``, as in ``task.py``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .task import FILLERS, LINE_TOKENS, NAMES, THINGS, PocketExample, fact, question_for

POINTER = "wanted"
QUESTION = question_for(POINTER)


@dataclass(frozen=True)
class TwoHopShape:
    """``stating`` chunks with ``facts`` facts each, then one with the pointer."""

    chunk_tokens: int = 16
    stating: int = 4
    facts: int = 2

    def __post_init__(self) -> None:
        if self.chunk_tokens % LINE_TOKENS:
            raise ValueError(f"chunk_tokens {self.chunk_tokens} is not a multiple of {LINE_TOKENS}")
        if not 1 <= self.facts <= self.lines:
            raise ValueError(f"facts {self.facts} does not fit {self.lines} lines")
        if not 1 <= self.stated <= len(NAMES):
            raise ValueError(f"{self.stated} facts about different kinds, of which there are {len(NAMES)}")

    @property
    def lines(self) -> int:
        return self.chunk_tokens // LINE_TOKENS

    @property
    def stated(self) -> int:
        return self.stating * self.facts

    def ceiling(self, kept: int) -> float:
        """The best accuracy of a memory that holds ``kept`` facts when the pointer comes; else one guesses a thing."""
        share = min(1.0, kept / self.stated)
        return share + (1 - share) / len(THINGS[NAMES[0]])


def make_two_hop(rng: random.Random, shape: TwoHopShape) -> PocketExample:
    """One example; ``name`` is the kind pointed at, ``fact_chunk`` where its fact stands."""
    names = rng.sample(NAMES, shape.stated)
    things = {name: rng.choice(THINGS[name]) for name in names}
    wanted = rng.choice(names)
    stated = [[fact(name, things[name]) for name in names[i : i + shape.facts]]
              for i in range(0, shape.stated, shape.facts)]
    rows = [line for facts in (*stated, [fact(POINTER, wanted)]) for line in _chunk(rng, facts, shape.lines)]
    where = names.index(wanted) // shape.facts
    return PocketExample(QUESTION, things[wanted], "\n".join(rows) + "\n", where, wanted)


def two_hop_examples(seed: int, count: int, shape: TwoHopShape) -> Iterator[PocketExample]:
    for index in range(count):
        yield make_two_hop(random.Random(f"two-hop:{seed}:{index}"), shape)


def _chunk(rng: random.Random, facts: list[str], lines: int) -> list[str]:
    rows = [text + "." for text in facts] + [rng.choice(FILLERS) for _ in range(lines - len(facts))]
    rng.shuffle(rows)
    return rows
