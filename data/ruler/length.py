"""Text of any size: a document that grows until it has the wanted number of tokens, and filler without answers.

How many tokens a size (characters, words: any whole number) makes depends on the tokenizer and is known only by
counting, and counting a document of a million tokens takes seconds. So ``fill`` learns the price of a step on small
documents first; then one or two full counts are enough. With one token per character,
``fill(lambda size: "x" * size, len, 1000)`` looks at 0, 60, 125 and 996 characters and returns 996.

``Filler(pieces, joint)`` is the text that the pieces make when written one after the other with ``joint`` between
them, cut after any number of characters. A cut may fall inside a word, as on a torn page. ``place`` puts statements
where a line (joint "\\n") or a sentence (joint " ") begins, never behind a torn word::

    filler = Filler(itertools.repeat("Rain. Wind."), "\\n")
    filler.text(17)                                  "Rain. Wind.\\nRain."
    place(filler.text(17), ["A=1"], [1.0], "\\n")    "Rain. Wind.\\nA=1\\nRain."
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_TYPICAL_CHARACTERS_PER_TOKEN = 4.0
_SENTENCE_ENDS = (". ", "! ", "? ")
_LONGEST_SENTENCE = 2000


class LengthError(Exception):
    """No size of this document fits; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Filled:
    size: int
    context: str
    tokens: int


def shortest_allowed(budget: int) -> int:
    return budget - budget // 100


def fill(build: Callable[[int], str], count: Callable[[str], int], budget: int) -> Filled:
    """The document of a size whose tokens are at most ``budget`` and at least 99 % of it; the same for the same
    arguments.

    ``count`` must grow with the size, apart from a jitter smaller than that 1 %.

    Raises:
        LengthError: even the document of size 0 is longer than ``budget``, or neighbouring sizes jump over the window.
    """

    def measure(size: int) -> Filled:
        context = build(size)
        return Filled(size, context, count(context))

    target = budget - budget // 250
    under, over, price = measure(0), None, _TYPICAL_CHARACTERS_PER_TOKEN
    if under.tokens > budget:
        raise LengthError(f"takes at least {under.tokens} tokens with this tokenizer")
    rehearsals = iter((budget // 64, budget // 8))
    for turn in itertools.count():
        if under.tokens >= shortest_allowed(budget):
            return under
        if over is None:
            aim = next((tokens for tokens in rehearsals if tokens > 2 * under.tokens), target)
            size = under.size + max(1, int((aim - under.tokens) * price))
        elif over.size - under.size == 1:
            break
        elif turn % 3 == 2:  # bounds the number of counts where a straight line is a bad guess
            size = (under.size + over.size) // 2
        else:
            share = (target - under.tokens) / (over.tokens - under.tokens)
            guess = under.size + int(share * (over.size - under.size))
            size = min(max(guess, under.size + 1), over.size - 1)
        probe = measure(size)
        if probe.tokens > budget:
            over = probe
        else:
            price = (probe.size - under.size) / max(1, probe.tokens - under.tokens)
            under = probe
    assert over is not None
    raise LengthError(f"can have {under.tokens} or {over.tokens} tokens with this tokenizer, nothing between")


class Filler:
    """Draws the pieces, which may never end, as they are needed and keeps what was drawn: shorter texts are
    beginnings of longer ones.
    """

    def __init__(self, pieces: Iterator[str], joint: str) -> None:
        self._pieces = pieces
        self._joint = joint
        self._text = next(pieces)

    def text(self, size: int) -> str:
        """The first ``size`` characters."""
        parts = [self._text]
        length = len(self._text)
        while length < size:
            parts.append(self._joint + next(self._pieces))
            length += len(parts[-1])
        self._text = "".join(parts)
        return self._text[:size]


def place(filler: str, statements: Sequence[str], depths: Sequence[float], joint: str) -> str:
    """The filler with each statement at its depth (0 = at the start, 1 = before the last line or sentence).

    Statements keep their order: the depths must not fall.
    """
    parts, done = [], 0
    for statement, depth in zip(statements, depths, strict=True):
        position = _beginning_before(filler, int(depth * len(filler)), joint)
        parts += [filler[done:position], statement, joint]
        done = position
    return "".join([*parts, filler[done:]])


def _beginning_before(filler: str, position: int, joint: str) -> int:
    """Where the line or sentence that holds ``position`` begins; a word, if no sentence ends near."""
    if joint == "\n":
        return filler.rfind("\n", 0, position) + 1
    nearest = max(filler.rfind(end, max(0, position - _LONGEST_SENTENCE), position) for end in _SENTENCE_ENDS)
    return nearest + 2 if nearest >= 0 else filler.rfind(" ", 0, position) + 1
