r"""Which sections an answer came from, and words to find each by in its file.

The rule: a section is a source if its turn brought a word of the answer into the memory, and no later turn brought
that word in again. Words that the question holds count only where the answer has no others; so do little words
(``the``, ``of``). A turn that merges reads nothing: the sections whose replies it merged are credited.

    section 0  memory "Ann: Paris"          section 2  memory "Ann: Paris, moved in 1987"
    section 1  memory "Ann: Paris"          answer \boxed{Paris, 1987}     sources 0 (Paris), 2 (1987)

So it is what the memory shows, not what led the model: a section that only confirmed is not named, and an answer that
is in no memory has no sources.

A quote is the sentence, or line, of the section that holds most words of the answer, and of those with equally many
the one that holds most words of the question. A section with none of the answer's words gives no quote.

    section 0, notes.txt lines 1-40       question "Which metal?"     answer "silver"
    -> notes.txt, line 12: "metal silver."
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from .steps import Section, TurnDone

_WORD = re.compile(r"\w+")
_LITTLE = frozenset(
    "a an and are as at be been but by for from had has have he her his i in is it its of on or she that the their "
    "they this to was were which who will with you".split()
)
_SENTENCE = re.compile(r"\S[^\n]*?(?:(?<=[.!?])(?=\s)|(?<=[。！？])|(?=\n)|\Z)")
LONGEST = 200
"""Characters of a quote."""


def words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def sources(turns: Sequence[TurnDone], answer: str, question: str) -> tuple[int, ...]:
    """Numbers of sections, in the order of the text; ``turns`` are those of one reading, in order."""
    held = words(answer) - _LITTLE or words(answer)
    wanted = held - words(question) or held
    entered: dict[str, set[int]] = {}
    before: frozenset[str] = frozenset()
    pending: list[TurnDone] = []
    for _, group in groupby((turn for turn in turns if turn.kind == "memory"), key=lambda turn: turn.round):
        side_by_side = list(group)
        after = words(side_by_side[0].memory)
        readers = [turn for turn in side_by_side if turn.sections]
        pending += readers
        for word in wanted & (after - before):
            credited = readers or pending
            holding = [turn for turn in credited if word in words(turn.reply)] or credited
            entered[word] = {section for turn in holding for section in turn.sections}
        if after != before:
            pending = []
        before = after
    return tuple(sorted({section for word in wanted & before for section in entered[word]}))


def quoted(text: str, section: Section, answer: str, question: str) -> tuple[int, int]:
    """The quote's first and last character; an empty range where no sentence of the section holds a word of
    ``answer``.

    A sentence that a border of the section cuts counts whole, up to ``LONGEST`` characters outside. A longer sentence
    is cut to the characters around the answer's first word.
    """
    wanted = words(answer) - words(question) or words(answer)
    best, start, end = (0, 0), section.start, section.start
    for sentence in _SENTENCE.finditer(text, max(0, section.start - LONGEST), section.end + LONGEST):
        last = sentence.start() + len(sentence[0].rstrip())
        held = words(sentence[0])
        score = (len(wanted & held), len(words(question) & held))
        if score[0] and score > best and sentence.start() < section.end and last > section.start:
            best, start, end = score, sentence.start(), last
    if end - start > LONGEST:
        at = next((word.start() for word in _WORD.finditer(text, start, end) if word[0].casefold() in wanted), start)
        start = min(max(start, at - LONGEST // 2), end - LONGEST)
        end = start + LONGEST
    return start, end
