"""Where accepted answers stand in texts, and what became of them turn by turn.

A fact is one accepted answer. It stands in a text where containment (``rewards.qa_metrics.sub_em``) says so: the same
words in SQuAD form, side by side; what is marked is the stretch of the text they come from. Answers in scripts that
put no blanks between words stand wherever their characters do. A box is none of a word: silver stands in
``\\boxed{silver}``. Yes, no and noanswer stand nowhere: texts hold them by chance.

Worked example, the fact "silver"; one turn a line::

    section        memory before    memory after
    Ann has it                      Ann             nothing yet
    silver.        Ann              Ann silver      seen, held, entered
    Bo sleeps      Ann silver       Ann silver      held
    Bo wakes       Ann silver       Bo              lost
    Silver again   Bo               Bo              seen: passed by

``web/facts.js`` is the same in a browser, and is held to this one by a test.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from ...rewards.qa_metrics import CLOSED_ANSWERS, normalise_squad
from ...traces.word_diff import WITHOUT_BLANKS

Span = tuple[int, int]
_RAW_WORD = re.compile(r"\S+")
_BOX = "\\boxed{"
_TEXTS = 4
"""Whose words are kept: whoever asks, asks for every fact in a text before the next text."""
_NO_BLANKS = re.compile(f"[{WITHOUT_BLANKS}]")


@dataclass(frozen=True, slots=True)
class Fact:
    text: str
    words: tuple[str, ...]
    """In SQuAD form; none where the characters themselves are searched."""
    articles: bool
    """Whether a, an and the are words of it."""


@dataclass(frozen=True, slots=True)
class FactTurns:
    """What one turn did with the facts: bit n of each number is the fact of place n."""

    seen: int
    """Stands in what the turn read: sections, or a recalled memory."""
    held: int
    """Stands in the memory afterwards."""
    before: int
    """Stood in the memory that the turn was shown."""

    @property
    def entered(self) -> int:
        return self.held & ~self.before

    @property
    def lost(self) -> int:
        return self.before & ~self.held

    @property
    def passed(self) -> int:
        """Read, and not kept."""
        return self.seen & ~self.held & ~self.before


class Standing:
    """Which facts stand in texts; a text is looked through once."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self._facts = facts
        self._found: dict[str, int] = {}

    def of(self, text: str) -> int:
        """As bits: fact n is bit n."""
        if text not in self._found:
            self._found[text] = sum(1 << place for place, fact in enumerate(self._facts) if holds(text, fact))
        return self._found[text]


def places(bits: int) -> Iterator[int]:
    """Of the bits that are set, ascending."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last


def facts_of(golds: Sequence[str]) -> tuple[Fact, ...]:
    """The accepted answers that can be searched for, each once."""
    found: dict[tuple[str, ...], Fact] = {}
    for gold in golds:
        if normalise_squad(gold, keep_articles=True) in CLOSED_ANSWERS | {""}:
            continue
        articles = not normalise_squad(gold)
        words = () if _NO_BLANKS.search(gold) else tuple(normalise_squad(gold, keep_articles=articles).split())
        found.setdefault(words or (gold.strip(),), Fact(gold.strip(), words, articles))
    return tuple(found.values())


def spans(text: str, fact: Fact) -> list[Span]:
    """Where the fact stands in the text, from left to right, none over another."""
    return list(_spans(text, fact))


def holds(text: str, fact: Fact) -> bool:
    return next(_spans(text, fact), None) is not None


def _spans(text: str, fact: Fact) -> Iterator[Span]:
    if not fact.words:
        yield from (match.span() for match in re.finditer(re.escape(fact.text), text))
        return
    if not _all_words(text, fact.articles).issuperset(fact.words):
        return  # most texts; the rest takes a hundred times longer
    searched, wanted = _searched(text, fact.articles), f" {' '.join(fact.words)} "
    at = -1
    while (at := searched.joined.find(wanted, max(at, 0))) >= 0:
        first = bisect_left(searched.starts, at)
        yield searched.places[first][0], searched.places[first + len(fact.words) - 1][1]
        at += len(wanted) - 1  # the blank behind it may stand before the next


@lru_cache(_TEXTS)
def _all_words(text: str, articles: bool) -> frozenset[str]:
    return frozenset(normalise_squad(_without_boxes(text), keep_articles=articles).split())


@dataclass(frozen=True, slots=True)
class _Searched:
    """A text in SQuAD form, a blank on each side of every word."""

    joined: str
    starts: list[int]
    places: list[Span]
    """Of the words in the text itself."""


@lru_cache(_TEXTS)
def _searched(text: str, articles: bool) -> _Searched:
    words, places = _words(text, articles)
    return _Searched(f" {' '.join(words)} ", [0, *accumulate(len(word) + 1 for word in words)], places)


def _without_boxes(text: str) -> str:
    return text.replace(_BOX, " " * len(_BOX))


def _words(text: str, articles: bool) -> tuple[list[str], list[Span]]:
    """The text's words in SQuAD form, and where the raw word that each comes from lies, marks around it left out."""
    words, places = [], []
    for match in _RAW_WORD.finditer(_without_boxes(text)):
        raw = match.group()
        end = match.start() + len(raw.rstrip(string.punctuation))
        start = match.end() - len(raw.lstrip(string.punctuation))
        for word in normalise_squad(raw, keep_articles=articles).split():
            words.append(word)
            places.append((start, end))
    return words, places
