"""What a task makes, and what it is made of.

A task is a pure function ``(rng, budget, count_tokens, haystack) -> RulerSample``: equal arguments give equal samples.

Invariants of a sample:
- ``length_tokens`` is RULER's length, all that an engine must hold: example, document, question, answer prefix, and
  what is ``reserved`` for the prompt around them and the reply. It lies within 1 % below the budget.
- every answer is a non-empty string that can be derived from ``context`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from ..data.pool import PoolQuestion
from ..data.ruler_corpus import Corpus
from ..system.errors import MemAgentError
from .wording import Sentences

CountTokens = Callable[[str], int]


class RulerError(MemAgentError):
    """RULER data cannot be made or scored from what was given."""


@dataclass(frozen=True, slots=True)
class Essay:
    """Running text, repeated for as long as a sample needs it."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class Haystack:
    """All that a task may hide its answers in; ``corpus`` and ``question`` are for the QA tasks alone."""

    wording: Sentences
    essay: Essay
    corpus: Corpus | None = None
    question: PoolQuestion | None = None
    reserved: int = 0
    """Tokens of a sample's length that are none of its text: the prompt around it, and the reply."""


@dataclass(frozen=True, slots=True)
class RulerSample:
    task: str
    input: str
    context: str
    answers: tuple[str, ...]
    answer_prefix: str
    length_tokens: int
    extra: Mapping[str, Any]
    example: str = ""
    """A solved sample of another, shorter document, to be shown before ``context``."""

    def __post_init__(self) -> None:
        assert self.answers and all(self.answers), f"{self.task}: an empty answer among {self.answers}"


def whole_length(
    count_tokens: CountTokens, haystack: Haystack, question: str, answer_prefix: str, example: str = ""
) -> CountTokens:
    """Counts a sample's length by its document."""
    besides = count_tokens(question) + count_tokens(answer_prefix) + haystack.reserved
    return lambda context: count_tokens(example + context) + besides


MakeSample = Callable[[Random, int, CountTokens, Haystack], RulerSample]
