"""Which questions a model answers without any document, judged from k sampled replies to each.

A reply's answer is its last box or, without one, all of it behind the thinking. What it takes to drop a question
depends on what its answers are (``answers.kind_of``):

======  ==============================================================================================
open    ANY reply equals an answer in SQuAD form, or has one as whole words, side by side
number  ANY reply equals an answer in SQuAD form
choice  ALL k replies are right, and guessing like this model would do that one time in five at most
======  ==============================================================================================

Why: a coin answers half of all yes/no questions, so "any of 4" would drop 94% of those that nobody knows; and "no"
as a substring stands in "know" and "not". The model's habit is its guess: where it says "yes" to a share p of all
choice questions, it is right k times in a row by habit alone with probability p ** k::

    k = 4, half of its answers are yes     0.5 ** 4 = 0.06    yes to all four: dropped, it knows
    k = 4, it says yes to 9 in 10          0.9 ** 4 = 0.66    yes to all four: stays, it may be habit
                                           0.1 ** 4 = 0.00    no to all four:  dropped, it knows

Invariant: the verdict is a function of the questions and replies alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..rewards.answers import AnswerKind, after_thinking, kind_of, last_boxed
from ..rewards.qa_metrics import exact_match, normalise_squad, sub_em

CHANCE = 0.2
"""A right answer by habit is believed to be knowledge if it is no likelier than this."""


@dataclass(frozen=True, slots=True)
class Asked:
    id: str
    answers: tuple[str, ...]
    replies: tuple[str, ...]

    @property
    def kind(self) -> AnswerKind:
        """CHOICE if any answer is one, else OPEN if any can be looked for, else NUMBER."""
        kinds = {kind_of(answer) for answer in self.answers}
        return next(kind for kind in (AnswerKind.CHOICE, AnswerKind.OPEN, AnswerKind.NUMBER) if kind in kinds)

    @property
    def right(self) -> list[bool]:
        """Whether each reply is right."""
        open_ones = [answer for answer in self.answers if kind_of(answer) is AnswerKind.OPEN]
        return [
            exact_match(_answer(reply), self.answers) == 1.0
            or (bool(open_ones) and sub_em(after_thinking(reply), open_ones) == 1.0)
            for reply in self.replies
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    dropped: tuple[str, ...]
    statistics: dict[str, Any]


def judge(asked: Sequence[Asked]) -> Verdict:
    """Drop what needs no document; every question must have the same number of replies."""
    choices = [one for one in asked if one.kind is AnswerKind.CHOICE]
    words = Counter(normalise_squad(_answer(reply)) for one in choices for reply in one.replies)
    habits = {word: count / words.total() for word, count in words.items() if kind_of(word) is AnswerKind.CHOICE}
    dropped = [one for one in asked if _is_known(one, habits)]
    kinds, gone = Counter(one.kind for one in asked), Counter(one.kind for one in dropped)
    gone_ids = {one.id for one in dropped}
    right = [each for one in asked for each in one.right]
    return Verdict(tuple(one.id for one in dropped), {
        "asked": len(asked),
        "dropped": len(dropped),
        "by_kind": {kind.value: {"asked": kinds[kind], "dropped": gone[kind]} for kind in AnswerKind},
        "choices_before": _golds(choices),
        "choices_after": _golds([one for one in choices if one.id not in gone_ids]),
        "habits": {word: round(share, 4) for word, share in sorted(habits.items())},
        "replies_right": round(sum(right) / max(1, len(right)), 4),
    })


def _is_known(one: Asked, habits: dict[str, float]) -> bool:
    if one.kind is not AnswerKind.CHOICE:
        return any(one.right)
    chance = max(habits.get(normalise_squad(answer), 0.0) for answer in one.answers) ** len(one.replies)
    return all(one.right) and chance <= CHANCE


def _golds(choices: Sequence[Asked]) -> dict[str, int]:
    return dict(sorted(Counter(normalise_squad(one.answers[0]) for one in choices).items()))


def _answer(reply: str) -> str:
    text = after_thinking(reply)
    boxed = last_boxed(text)
    return text.strip() if boxed is None else boxed
