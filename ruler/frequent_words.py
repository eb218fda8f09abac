"""Frequent words: a text of coined words whose frequencies follow a Zeta distribution with exponent 2.

Of ``n`` words the one of rank k occurs ``floor(n / (k² ζ(2)))`` times, ζ(2) = π²/6. The first rank is not a word but
dots, which the question tells to ignore; the answers are the ranks 2 to 4. For n = 100::

    rank     1 (dots)  2   3  4  5  6  7  8
    times    60        15  6  3  2  1  1  0

A text is that of the largest ``n`` which fits, and of the words by which the next one is longer the first that fit.

Invariants:
- every answer occurs more often than all words that are no answers;
- a text one word longer is the same text with one word put in, so that its tokens grow by steps of a word.
"""

from __future__ import annotations

import itertools
import math
import string
from random import Random

from .length import LengthError, fill
from .sample import CountTokens, Haystack, RulerSample, whole_length
from .words import draw_new

ANSWERS = 3
DOTS = "..."
_LETTERS = 6
_FIRST_SHARE = 6 / math.pi**2


def frequent_words(name: str, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> RulerSample:
    """See ``sample.py``."""
    order = rng.getrandbits(64)
    ranked, taken = [DOTS], set[str]()
    places: list[tuple[Random, list[float]]] = []

    def build(words: int) -> str:
        times = counts_within(words)
        while len(ranked) < len(times):
            ranked.append(draw_new(_coined, rng, taken))
        while len(places) < len(times):
            places.append((Random(f"{order}/{len(places)}"), []))
        text: list[tuple[float, str]] = []
        for word, number, (draws, drawn) in zip(ranked, times, places, strict=False):
            drawn += [draws.random() for _ in range(number - len(drawn))]
            text += [(place, word) for place in drawn[:number]]
        return " ".join(word for _, word in sorted(text))

    question = haystack.wording.fwe.format(count=ANSWERS)
    prefix = haystack.wording.fwe_prefix.format(count=ANSWERS)
    filled = fill(build, whole_length(count_tokens, haystack, question, prefix), budget)
    times = counts_within(filled.size)
    if len(times) < ANSWERS + 2 or times[ANSWERS] == times[ANSWERS + 1]:
        raise LengthError("needs more words for its answers to stand out")
    return RulerSample(
        task=name,
        input=question,
        context=filled.context,
        answers=tuple(ranked[1 : ANSWERS + 1]),
        answer_prefix=prefix,
        length_tokens=filled.tokens,
        extra={"haystack": "coined words", "frequencies": times[: ANSWERS + 2]},
    )


def zeta_counts(words: int) -> list[int]:
    """How often each rank occurs among ``words`` words, rounded down, as far as that is not 0."""
    times = (int(words * _FIRST_SHARE / rank**2) for rank in itertools.count(1))
    return list(itertools.takewhile(bool, times))


def counts_within(total: int) -> list[int]:
    """The counts of a text of ``total`` words."""
    low, high = total, 2 * total + 1
    while high - low > 1:
        middle = (low + high) // 2
        if sum(zeta_counts(middle)) <= total:
            low = middle
        else:
            high = middle
    times, longer = zeta_counts(low), zeta_counts(high)
    for rank, (now, then) in enumerate(itertools.zip_longest(times, longer, fillvalue=0)):
        if now < then and sum(times) < total:
            times[rank:] = [then, *times[rank + 1 :]]
    return times


def _coined(rng: Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=_LETTERS))
