r"""The sections that an answer came from, as people look them up: the file, the place in it, and words to find it by.

A quote is the sentence, or line, of the section that holds most words of the answer, and of those with equally many
the one that holds most words of the question. A section with none of the answer's words gives no quote.

    section 0, notes.txt lines 1-40       question "Which metal?"     answer "silver"
    -> notes.txt, line 12: "metal silver."
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..data.documents import Documents, Place
from .sources import words
from .steps import Section

_SENTENCE = re.compile(r"[^\n]*?(?:[.!?](?=\s)|[。！？]|(?=\n)|\Z)")
LONGEST = 200
"""Characters of a quote."""


@dataclass(frozen=True, slots=True)
class Source:
    """One section that the answer came from."""

    section: int
    places: tuple[Place, ...]
    """All of the section, one place for each file that it touches."""
    quote: str
    at: tuple[Place, ...]
    """Where the quote stands; empty without a quote."""


def sources_with_quotes(
    documents: Documents, sections: Sequence[Section], numbers: Sequence[int], answer: str, question: str
) -> tuple[Source, ...]:
    """One for each of ``numbers``, in their order."""
    return tuple(_source(documents, sections[number], number, answer, question) for number in numbers)


def _source(documents: Documents, section: Section, number: int, answer: str, question: str) -> Source:
    places = documents.places(section.start, section.end)
    start, end = quoted(documents.text, section, words(answer), words(question))
    return Source(number, places, documents.text[start:end], documents.places(start, end))


def quoted(text: str, section: Section, told: frozenset[str], asked: frozenset[str]) -> tuple[int, int]:
    """The quote's characters; empty where no sentence of the section holds a word of ``told``.

    A sentence that a border of the section cuts counts whole, but for what is far outside. Words of the question count
    as the answer's only where the answer has no others.
    """
    told = told - asked or told
    best, found = (0, 0), (section.start, section.start)
    for sentence in _SENTENCE.finditer(text, max(0, section.start - LONGEST), section.end + LONGEST):
        start, end = _without_blanks(text, *sentence.span())
        if end <= section.start or start >= section.end:
            continue
        held = words(sentence[0])
        worth = (len(told & held), len(asked & held))
        if worth[0] and worth > best:
            best, found = worth, (start, end)
    return _cut(text, *found, told)


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _cut(text: str, start: int, end: int, told: frozenset[str]) -> tuple[int, int]:
    """Of more than ``LONGEST`` characters those around the answer's first word."""
    if end - start > LONGEST:
        at = next((word.start() for word in re.finditer(r"\w+", text[start:end]) if word[0].casefold() in told), 0)
        start = min(max(start, start + at - LONGEST // 2), end - LONGEST)
        end = start + LONGEST
    return start, end
