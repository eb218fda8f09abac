"""What every task shares: what it is made from, what it makes, and how it draws words.

A task is a pure function ``(rng, budget, count_tokens, haystack) -> Sample``: equal arguments give equal samples. It
draws its answers, says how a document of any size is built around them, and lets ``grown`` find the size.

Nothing here asks the operating system for randomness, so a seed gives the same words, numbers and uuids everywhere.
The word lists are those of the package ``wonderwords``, cut down to plain lower-case words: one written with a hyphen
or a blank could not be told from two words.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from wonderwords import Defaults, RandomWord

from ...system.errors import MemAgentError
from .length import fill
from .wording import Wording

CountTokens = Callable[[str], int]


class RulerError(MemAgentError):
    """RULER data cannot be made from what was given."""


@dataclass(frozen=True, slots=True)
class Essay:
    """Running text, repeated for as long as a sample needs it."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class CorpusQuestion:
    """``gold`` and ``own`` are numbers of documents, disjoint: those that hold the answer, and its distractors."""

    question: str
    answers: tuple[str, ...]
    gold: tuple[int, ...]
    own: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    documents: tuple[str, ...]
    questions: tuple[CorpusQuestion, ...]


@dataclass(frozen=True, slots=True)
class Haystack:
    """All that a task may hide its answers in; ``corpus`` and ``question`` are for the QA tasks alone."""

    wording: Wording
    essay: Essay
    corpus: Corpus | None = None
    question: CorpusQuestion | None = None
    reserved: int = 0
    """Tokens of a sample's length that are none of its text: the prompt around it, and the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An entry of a file, its fields in this order; a task knows only those without a default."""

    context: str
    """The document: every answer can be derived from it alone."""
    input: str
    answers: tuple[str, ...]
    index: int = 0
    task: str = ""
    length: int = 0
    length_tokens: int
    """RULER's length, all that an engine must hold: example, document, question, answer prefix, and ``reserved``. It
    lies within 1 % below the budget."""
    answer_prefix: str
    example: str
    """A solved sample of another, shorter document, to be shown before ``context``; empty for most tasks."""
    tokens_to_generate: int = 0
    metric: str = ""
    extra: Mapping[str, Any]


MakeSample = Callable[[Random, int, CountTokens, Haystack], Sample]


def grown(
    build: Callable[[int], str], budget: int, count_tokens: CountTokens, haystack: Haystack, *, question: str,
    prefix: str, answers: Sequence[str], extra: Mapping[str, Any], example: str = "",
) -> Sample:
    """The sample whose document ``build`` makes, of the size that fits. Raises LengthError."""
    besides = count_tokens(question) + count_tokens(prefix) + haystack.reserved
    filled = fill(build, lambda context: count_tokens(example + context) + besides, budget)
    return Sample(context=filled.context, input=question, answers=tuple(answers), length_tokens=filled.tokens,
                  answer_prefix=prefix, example=example, extra=extra)


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


def seven_digits(rng: Random) -> str:
    return str(rng.randint(1_000_000, 9_999_999))


def uuid4(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def letters(alphabet: str, number: int) -> Callable[[Random], str]:
    return lambda rng: "".join(rng.choices(alphabet, k=number))


def draw_new(draw: Callable[[Random], str], rng: Random, taken: set[str], text: str = "") -> str:
    """The first draw that is neither ``taken`` nor part of ``text``; it is taken from then on."""
    drawn = draw(rng)
    while drawn in taken or drawn in text:
        drawn = draw(rng)
    taken.add(drawn)
    return drawn
