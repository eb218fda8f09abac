"""What every task shares: what it is made from, what it makes, how it draws words, and how its document grows.

A task is a pure function ``(rng, budget, count_tokens, haystack) -> Sample``: equal arguments give equal samples. It
draws its answers, says how a document of any size is built around them, and lets ``grown`` find the size.

How many tokens a size (characters, words: any whole number) makes depends on the tokenizer and is known only by
counting, and counting a document of a million tokens takes seconds. So ``fill`` learns the price of a step on small
documents first; then one or two full counts are enough. With one token per character,
``fill(lambda size: "x" * size, len, 1000)`` looks at 0, 60, 125 and 996 characters and returns 996.

``filler(pieces, joint)`` is the text that the pieces make when written one after the other with ``joint`` between
them, cut after any number of characters. A cut may fall inside a word, as on a torn page. ``place`` puts statements
where a line (joint "\\n") or a sentence (joint " ") begins, never behind a torn word::

    text = filler(itertools.repeat("Rain. Wind."), "\\n")
    text(17)                                  "Rain. Wind.\\nRain."
    place(text(17), ["A=1"], [1.0], "\\n")    "Rain. Wind.\\nA=1\\nRain."

Nothing here asks the operating system for randomness, so a seed gives the same words, numbers and uuids everywhere.
The word lists are those of the package ``wonderwords``, cut down to plain lower-case words: one written with a hyphen
or a blank could not be told from two words.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, NamedTuple

from wonderwords import Defaults, RandomWord

from ...system.errors import MemAgentError
from ..pool import PoolQuestion
from .wording import Wording

CountTokens = Callable[[str], int]
_TYPICAL_CHARACTERS_PER_TOKEN = 4.0
_SENTENCE_ENDS = (". ", "! ", "? ")
_LONGEST_SENTENCE = 2000


class RulerError(MemAgentError):
    """RULER data cannot be made from what was given."""


class LengthError(Exception):
    """No size of this document fits; the message says what is missing."""


class Essay(NamedTuple):
    """Running text, repeated for as long as a sample needs it."""

    text: str
    name: str


class Corpus(NamedTuple):
    name: str
    documents: tuple[str, ...]
    questions: tuple[PoolQuestion, ...]


@dataclass(frozen=True, slots=True)
class Haystack:
    """All that a task may hide its answers in; ``corpus`` and ``question`` are for the QA tasks alone."""

    wording: Wording
    essay: Essay
    corpus: Corpus | None = None
    question: PoolQuestion | None = None
    reserved: int = 0
    """Tokens of a sample's length that are none of its text: the prompt around it, and the reply."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a task makes; fields are named as those of a file's entry."""

    context: str
    """The document: every answer can be derived from it alone."""
    input: str
    answers: tuple[str, ...]
    length_tokens: int
    """RULER's length, all that an engine must hold: example, document, question, answer prefix, and ``reserved``. It
    lies within 1 % below the budget."""
    answer_prefix: str
    example: str
    """A solved sample of another, shorter document, to be shown before ``context``; empty for most tasks."""
    extra: Mapping[str, Any]


MakeSample = Callable[[Random, int, CountTokens, Haystack], Sample]


def grown(
    build: Callable[[int], str], budget: int, count_tokens: CountTokens, haystack: Haystack, *, question: str,
    prefix: str, answers: Sequence[str], extra: Mapping[str, Any], example: str = "",
) -> Sample:
    """The sample whose document ``build`` makes, of the size that fits. Raises LengthError."""
    besides = count_tokens(question) + count_tokens(prefix) + haystack.reserved
    filled = fill(build, lambda context: count_tokens(example + context) + besides, budget)
    return Sample(filled.context, question, tuple(answers), filled.tokens, prefix, example, extra)


# --- length ----------------------------------------------------------------------------------------------------------
class Filled(NamedTuple):
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


def filler(pieces: Iterator[str], joint: str) -> Callable[[int], str]:
    """Gives the first characters, so many as it is called with, of the pieces, which may never end. They are drawn as
    they are needed, and shorter texts are beginnings of longer ones.
    """
    text = next(pieces)

    def beginning(size: int) -> str:
        nonlocal text
        parts, length = [text], len(text)
        while length < size:
            parts.append(joint + next(pieces))
            length += len(parts[-1])
        text = "".join(parts)
        return text[:size]

    return beginning


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


# --- draws -----------------------------------------------------------------------------------------------------------
@cache
def english(*kinds: str) -> tuple[str, ...]:
    """Plain words of the kinds, which are ``nouns``, ``adjectives`` and ``verbs`` (about 8 500 in all): sorted, each
    once."""
    lists = {kind: Defaults[kind.upper()] for kind in kinds}
    return tuple(RandomWord(enhanced_prefixes=False, **lists).filter(regex="[a-z]{2,}"))


def word_pair(rng: Random) -> str:
    """An adjective and a noun, as ``quiet-harbor``; there are about six million."""
    return f"{rng.choice(english('adjectives'))}-{rng.choice(english('nouns'))}"


DRAWS: Mapping[str, Callable[[Random], str]] = {
    "word": word_pair, "number": lambda rng: str(rng.randint(1_000_000, 9_999_999)),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
}


def letters(alphabet: str, number: int) -> Callable[[Random], str]:
    return lambda rng: "".join(rng.choices(alphabet, k=number))


def draw_new(draw: Callable[[Random], str], rng: Random, taken: set[str], text: str = "") -> str:
    """The first draw that is neither ``taken`` nor part of ``text``; it is taken from then on."""
    drawn = draw(rng)
    while drawn in taken or drawn in text:
        drawn = draw(rng)
    taken.add(drawn)
    return drawn
