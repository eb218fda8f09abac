r"""What happens while a document is read, step by step, and which sections an answer came from. In this order:

    Started, TurnDone of each memory turn, Delta ..., TurnDone of the final turn

and, for who asks for it, ``Growing`` while a memory is written.

``Answered`` is what becomes of them. The deltas joined are its text, except where a ``</think>`` that nothing had
opened shows late that the deltas so far were thinking: then one delta is ``</think>``, and the text is what follows
the last of these.

Sources
-------
A section is a source if its turn brought a word of the answer into the memory, and no later turn brought
that word in again. Words that the question holds count only where the answer has no others; so do little words
(``the``, ``of``). A turn that merges reads nothing: the sections whose replies it merged are credited.

    section 0  memory "Ann: Paris"          section 2  memory "Ann: Paris, moved in 1987"
    section 1  memory "Ann: Paris"          answer \boxed{Paris, 1987}     sources 0 (Paris), 2 (1987)

So it is what the memory shows, not what led the model: a section that only confirmed is not named, and an answer that
is in no memory has no sources. Nor is a section named whose text has none of its words, nor any where all of them have
fewer than half of its words: the model made it up.

A quote is the sentence, or line, of the section that holds most words of the answer, and of those with equally many
the one that holds most words of the question. A section with none of the answer's words gives no quote.

    section 0, notes.txt lines 1-40       question "Which metal?"     answer "silver"
    -> notes.txt, line 12: "metal silver."
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ..agents.documents import SENTENCE

_WORD = re.compile(r"\w+")
_LITTLE = frozenset(
    "a an and are as at be been but by for from had has have he her his i in is it its of on or she that the their "
    "they this to was were which who will with you".split()
)
LONGEST = 200
"""Characters of a quote."""


@dataclass(frozen=True, slots=True)
class Section:
    """What one memory turn is shown of the document: its characters ``start`` to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Started:
    """The document is tokenised and cut; nothing was asked of the engine yet."""

    sections: tuple[Section, ...]
    """In the order of the text, without gaps; none where there is no document."""
    document_tokens: int


@dataclass(frozen=True, slots=True)
class TurnDone:
    """One turn was sampled. Of turns that were sampled side by side there is one for each."""

    round: int
    """Turns of one round were sampled side by side."""
    kind: str
    """``memory`` or ``final``."""
    sections: tuple[int, ...]
    """Numbers of the sections that it showed; none in a turn that answers or merges."""
    memory: str
    """The memory after its round; of the final turn the one it was shown."""
    reply: str
    recalled: str
    """The earlier memory that it was shown besides, where the agent recalls."""
    prompt_tokens: int
    reply_tokens: int
    cached_tokens: int | None


@dataclass(frozen=True, slots=True)
class Delta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    text: str
    """The final reply, thinking removed, up to its stop."""
    answer: str
    """What the model's task reads from it, e.g. the content of the last box; empty where it finds none."""
    sources: tuple[int, ...]
    """Numbers of the sections that the answer came from (``sources``)."""
    finish_reason: str
    """``stop``, or ``length`` where the reply ran into its limit."""


@dataclass(frozen=True, slots=True)
class Growing:
    """A memory as far as it is written, of a turn that is sampled alone."""

    section: int
    memory: str


Step = Started | TurnDone | Delta | Growing


# --- sources ---------------------------------------------------------------------------------------------------------


def words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))


def _telling(answer: str, question: str) -> frozenset[str]:
    """The answer's words that tell where it comes from."""
    held = words(answer) - _LITTLE or words(answer)
    return held - words(question) or held


def sources(turns: Sequence[TurnDone], answer: str, question: str) -> tuple[int, ...]:
    """Numbers of sections, in the order of the text; ``turns`` are those of one reading, in order."""
    wanted = _telling(answer, question)
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


def stands_in(texts: Sequence[str], answer: str, question: str) -> bool:
    """Whether at least half of the answer's telling words are in the texts, or the model made it up."""
    wanted = _telling(answer, question)
    return 2 * len(wanted & words(" ".join(texts))) >= len(wanted)


def quoted(text: str, section: Section, answer: str, question: str) -> tuple[int, int]:
    """The quote's first and last character; an empty range where no sentence of the section holds a word of
    ``answer``.

    A sentence that a border of the section cuts counts whole, up to ``LONGEST`` characters outside. A longer sentence
    is cut to the characters around the answer's first word.
    """
    wanted = _telling(answer, question)
    best, start, end = (0, 0), section.start, section.start
    for sentence in SENTENCE.finditer(text, max(0, section.start - LONGEST), section.end + LONGEST):
        first, last = sentence.end() - len(sentence[0].lstrip()), sentence.start() + len(sentence[0].rstrip())
        held = words(sentence[0])
        score = (len(wanted & held), len(words(question) & held))
        if score[0] and score > best and first < section.end and last > section.start:
            best, start, end = score, first, last
    if end - start > LONGEST:
        at = next((word.start() for word in _WORD.finditer(text, start, end) if word[0].casefold() in wanted), start)
        start = min(max(start, at - LONGEST // 2), end - LONGEST)
        end = start + LONGEST
    return start, end
