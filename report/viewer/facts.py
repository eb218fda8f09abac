"""Where accepted answers stand in texts, and what became of them turn by turn.

A fact is one accepted answer. It stands in a text where containment (``rewards.qa_metrics.sub_em``) says so: the same
words in SQuAD form, side by side; what is marked is the stretch of the text they come from. Answers in scripts that
put no blanks between words stand wherever their characters do. A box is none of a word: silver stands in
``\\boxed{silver}``. Yes, no, noanswer and articles stand nowhere: texts hold them by chance.

Worked example, the fact "silver"; one turn a line::

    section        memory before    memory after
    Ann has it                      Ann             nothing yet
    silver.        Ann              Ann silver      entered
    Bo sleeps      Ann silver       Ann silver      held
    Bo wakes       Ann silver       Bo              lost
    Silver again   Bo               Bo              passed by
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ...asking.word_diff import WITHOUT_BLANKS, Change, Piece, word_diff
from ...hooks.traces import TraceTurn
from ...rewards.qa_metrics import CLOSED_ANSWERS, PUNCTUATION, normalise_squad

Span = tuple[int, int]
_BOX = "\\boxed{"
_MARKS = f"[{re.escape(PUNCTUATION)}]*"
_BETWEEN_WORDS = rf"{_MARKS}\s(?:\s|{_MARKS}\b(?:a|an|the)\b)*{_MARKS}"


class Fact(NamedTuple):
    text: str
    form: str
    """Its words in SQuAD form; empty where the characters themselves are searched."""

    @property
    def pattern(self) -> str:
        """Of the stretch of a text that the words come from, without marks around it."""
        words = [_MARKS.join(map(re.escape, word)) for word in self.form.split()]
        return rf"(?<!\w){_BETWEEN_WORDS.join(words)}(?!\w)" if words else re.escape(self.text)


def facts_of(golds: Sequence[str]) -> tuple[Fact, ...]:
    """The accepted answers that can be searched for, each once."""
    found: dict[str, Fact] = {}
    for gold in map(str.strip, golds):
        form = normalise_squad(gold, any_script=True)
        if form and form not in CLOSED_ANSWERS:
            fact = Fact(gold, "" if re.search(f"[{WITHOUT_BLANKS}]", gold) else form)
            found.setdefault(fact.form or gold, fact)
    return tuple(found.values())


def holds(text: str, fact: Fact) -> bool:
    return f" {fact.form} " in _form(text) if fact.form else fact.text in text


@lru_cache(1024)  # whoever asks, asks for every fact in a text, and of siblings that share a document
def _form(text: str) -> str:
    return f" {normalise_squad(text.replace(_BOX, ' '), any_script=True)} "


def gold_spans(text: str, facts: Sequence[Fact]) -> list[Span]:
    """Where any of the facts stands in the text, from left to right, none over another."""
    patterns = sorted((fact.pattern for fact in facts if holds(text, fact)), key=len, reverse=True)
    return [match.span() for match in re.finditer("|".join(patterns), text, re.IGNORECASE)] if patterns else []


def events_of(turn: TraceTurn, before: str, sections: Sequence[str], facts: Sequence[Fact]) -> list[str]:
    """What became of each fact in a turn: entered, held, lost, passed (read, and not kept), or "" for nothing; in a
    final turn answered or passed.

    Args:
        before: the memory that the turn started from.
        sections: the texts that its prompt showed.
    """
    final = turn.kind == "final"
    events = []
    for fact in facts:
        if holds(turn.reply if final else turn.memory, fact):
            events.append("answered" if final else "held" if holds(before, fact) else "entered")
        elif not final and holds(before, fact):
            events.append("lost")
        else:  # an answer may come straight from a prompt with the document
            read = any(holds(text, fact) for text in (turn.recalled, *(sections or [turn.prompt])))
            events.append("passed" if read else "")
    return events


def changes_of(before: str, after: str, facts: Sequence[Fact]) -> list[tuple[Piece, list[Span]]]:
    """What a memory gained and lost, piece by piece, each with the part of the accepted answers that stands in it."""
    gold, at, found = gold_spans(after, facts), 0, []
    for piece in word_diff(before, after):
        if piece.change is Change.REMOVED:
            found.append((piece, gold_spans(piece.text, facts)))
        else:
            found.append((piece, within(gold, at, at + len(piece.text))))
            at += len(piece.text)
    return found


def within(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """The parts of the spans that lie in a stretch, as the stretch counts."""
    return [(max(a, start) - start, min(b, end) - start) for a, b in spans if a < end and b > start]
