"""Needles in a haystack: sentences that give keys their values, and a question for the values of some keys.

=============  ====================================================================================================
haystack       ``noise`` one line of short sentences, over and over; ``essay`` running text; ``needles`` needles of
               other keys, so that nearly every line is a distractor
``keys``       how many keys have needles besides those of the haystack
``values``     needles per key, each with a value of its own
``queries``    how many of the keys are asked for
=============  ====================================================================================================

Invariants:
- no two needles of a document share a key (unless it is the multivalue key) or a value;
- in an essay, neither keys nor values stand in the text already;
- the answers are the values of the asked keys, in the order of the question.

Example (keys=2, values=1, queries=1)::

    context  "... the tide. A magic number of red-fox is 4021877. Nobody spoke. A magic number of odd-key is 1350026."
    input    "Which magic number of odd-key does the text state?"
    answers  ("1350026",)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from .filler import Filler, place
from .length import fill
from .sample import CountTokens, Haystack, RulerSample, whole_length
from .wording import Sentences
from .words import draw_new, number, uuid4, word_pair

_ESSAY_DEPTHS = [round(100 * step / 39) / 100 for step in range(40)]
"""RULER's 40 places from the start to the end, in whole percents."""
_DRAWS = {"word": word_pair, "number": number, "uuid": uuid4}


@dataclass(frozen=True, slots=True)
class Niah:
    """One configuration of the task."""

    haystack: Literal["noise", "essay", "needles"]
    key: Literal["word", "uuid"] = "word"
    value: Literal["number", "uuid"] = "number"
    keys: int = 1
    values: int = 1
    queries: int = 1

    def __post_init__(self) -> None:
        assert 1 <= self.queries <= self.keys and self.values >= 1, self


def niah(
    name: str, form: Niah, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack
) -> RulerSample:
    """One sample of configuration ``form``; see ``sample.py``."""
    wording, taken = haystack.wording, set[str]()
    avoid = haystack.essay.text if form.haystack == "essay" else ""
    values = {
        draw_new(_DRAWS[form.key], rng, taken, avoid): [
            draw_new(_DRAWS[form.value], rng, taken, avoid) for _ in range(form.values)
        ]
        for _ in range(form.keys)
    }
    needles = [_needle(wording, form, key, value) for key, own in values.items() for value in own]
    rng.shuffle(needles)
    asked = rng.sample(list(values), form.queries)
    depths = _depths(form, rng, len(needles))
    question, prefix = _question(wording, form, asked)
    filler, joint = _filler(form, haystack, _distractors(wording, form, rng, taken))
    filled = fill(
        lambda size: place(filler.text(size), needles, depths, joint),
        whole_length(count_tokens, haystack, question, prefix),
        budget,
    )
    source = {"noise": "repeated sentences", "essay": haystack.essay.name, "needles": "needles"}[form.haystack]
    return RulerSample(
        task=name,
        input=question,
        context=filled.context,
        answers=tuple(value for key in asked for value in values[key]),
        answer_prefix=prefix,
        length_tokens=filled.tokens,
        extra={"haystack": source, "keys": asked, "depths": [round(depth, 4) for depth in depths]},
    )


def _needle(wording: Sentences, form: Niah, key: str, value: str) -> str:
    return wording.needle.format(kind=form.value, kinds=f"{form.value}s", key=key, value=value)


def _distractors(wording: Sentences, form: Niah, rng: Random, taken: set[str]) -> Iterator[str]:
    while True:
        key = draw_new(_DRAWS[form.key], rng, taken)
        yield _needle(wording, form, key, draw_new(_DRAWS[form.value], rng, taken))


def _filler(form: Niah, haystack: Haystack, distractors: Iterator[str]) -> tuple[Filler, str]:
    """The text around the needles, and what separates them from it."""
    if form.haystack == "essay":
        return Filler(itertools.repeat(haystack.essay.text), " "), " "
    lines = distractors if form.haystack == "needles" else itertools.repeat(haystack.wording.noise)
    return Filler(lines, "\n"), "\n"


def _depths(form: Niah, rng: Random, needles: int) -> list[float]:
    if form.haystack == "essay":
        return sorted(rng.sample(_ESSAY_DEPTHS, needles))
    return sorted(rng.random() for _ in range(needles))


def _question(wording: Sentences, form: Niah, asked: Sequence[str]) -> tuple[str, str]:
    """The question and its answer prefix."""
    keys = asked[0] if len(asked) == 1 else f"{', '.join(asked[:-1])}, and {asked[-1]}"
    names = {"kind": form.value, "kinds": f"{form.value}s", "keys": keys}
    if form.queries * form.values == 1:
        return wording.niah_one.format(**names), wording.niah_one_prefix.format(**names)
    return wording.niah_many.format(**names), wording.niah_many_prefix.format(**names)
