r"""Which sections an answer came from, told by what they did to the memory.

The rule: a section is a source if its turn brought a word of the answer into the memory, and no later turn brought
that word in again. Words that the question holds say nothing and are left out, as long as others are left; so are
little words (``the``, ``of``). A turn that merges is no reader: the sections whose replies it merged are credited.

    section 0  memory "Ann: Paris"          section 2  memory "Ann: Paris, moved in 1987"
    section 1  memory "Ann: Paris"          answer \boxed{Paris, 1987}     sources 0 (Paris), 2 (1987)

So it is what the memory shows, not what the model was led by: a section that only confirmed is not named, and an
answer that is in no memory has no sources.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .steps import TurnDone

_WORD = re.compile(r"\w+")
_LITTLE = frozenset(
    "a an and are as at be been but by for from had has have he her his i in is it its of on or she that the their "
    "they this to was were which who will with you".split()
)


def words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def sources(turns: Sequence[TurnDone], answer: str, question: str) -> tuple[int, ...]:
    """Numbers of sections, in the order of the text; ``turns`` are those of one reading, in order."""
    told = words(answer) - _LITTLE or words(answer)
    looked_for = told - words(question) or told
    entered: dict[str, tuple[int, ...]] = {}
    before: frozenset[str] = frozenset()
    pending: list[TurnDone] = []
    for turns_of_round in _rounds(turns):
        after = words(turns_of_round[0].memory)
        readers = [turn for turn in turns_of_round if turn.sections]
        pending.extend(readers)
        if fresh := looked_for & (after - before):
            replies = [(turn.sections, words(turn.reply)) for turn in readers or pending]
            entered |= {word: _readers_of(word, replies) for word in fresh}
        pending = [] if after != before else pending
        before = after
    return tuple(sorted({section for word in looked_for & before for section in entered[word]}))


def _readers_of(word: str, replies: Sequence[tuple[Sequence[int], frozenset[str]]]) -> tuple[int, ...]:
    """The sections of the turns whose replies hold ``word``; of all of them where it was in none as such."""
    held = [sections for sections, said in replies if word in said] or [sections for sections, _ in replies]
    return tuple(section for sections in held for section in sections)


def _rounds(turns: Sequence[TurnDone]) -> list[list[TurnDone]]:
    """Memory turns that were sampled side by side."""
    rounds: dict[int, list[TurnDone]] = {}
    for turn in turns:
        if turn.kind == "memory":
            rounds.setdefault(turn.round, []).append(turn)
    return list(rounds.values())
