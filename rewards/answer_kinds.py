"""Which answers can be looked for in a text, and which can be guessed without knowing anything.

======  =====================================================  ===================================================
kind    answers                                                consequence
======  =====================================================  ===================================================
choice  yes, no, noanswer                                      its words prove nothing in a text; guessed half the
                                                               time
number  digits, a numeral, or at most 3 characters             found by chance in long replies
open    everything else                                        standing in a text, it was known there
======  =====================================================  ===================================================

All in SQuAD form (rewards/qa_metrics.py), so "No." is a choice and "1,984" is a number.
"""

from __future__ import annotations

from enum import StrEnum

from .qa_metrics import CLOSED_ANSWERS, normalise_squad

_NUMERALS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion".split()
)
_SHORT = 3


class AnswerKind(StrEnum):
    CHOICE = "choice"
    NUMBER = "number"
    OPEN = "open"


def kind_of(answer: str) -> AnswerKind:
    form = normalise_squad(answer)
    if form in CLOSED_ANSWERS:
        return AnswerKind.CHOICE
    if len(form) <= _SHORT or all(word.isdigit() or word in _NUMERALS for word in form.split()):
        return AnswerKind.NUMBER
    return AnswerKind.OPEN
