"""Which words occur most often: English words in a numbered list (``cwe``), coined words in a text (``fwe``)."""

from __future__ import annotations

import itertools
import math
import string
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from .sample import CountTokens, Haystack, LengthError, Sample, draw_new, english, grown, letters, word_pair

COMMON_WORDS = 10
_SHORT = 4096
_SIZES_PER_ITEM = 32
"""The steps in which a list grows: whole items, and characters of the item that is cut."""
FREQUENT_WORDS = 3
DOTS = "..."
_COINED = letters(string.ascii_lowercase, 6)


# --- common words ----------------------------------------------------------------------------------------------------
def common_words(rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """A numbered list in which ten words occur far more often than all others.

    ====================  ===================  ====================
    length                each common word     each uncommon word
    ====================  ===================  ====================
    4096 tokens or more   30 times             3 times
    less                  6 times              once
    ====================  ===================  ====================

    A solved example comes before, as in RULER: a list of 10 common words 10 times and 30 uncommon ones 3 times; under
    4096 tokens 3 times, and 10 once (``common_words_extraction.py``, c3f5e3b). Its words are none of the document's,
    so that no answer can be copied from it.

    The list grows by uncommon words. The last of them may occur less often than its fellows, and the last item of
    all, an uncommon one, may be cut short so that the list ends where the budget does. No word of the list contains a
    common word, other than that common word itself; so an answer found in a reply really is that answer. Example (2
    common words 3 times, uncommon once, the last item cut)::

        1. tea 2. oak 3. tea 4. ship 5. oak 6. oak 7. tea 8. lam
    """
    often, seldom = frequencies(budget)
    common, uncommon = _split(rng)
    order = rng.getrandbits(64)
    drawn: list[str] = []

    def build(size: int) -> str:
        items, characters = divmod(size, _SIZES_PER_ITEM)
        drawn.extend(itertools.islice(uncommon, max(0, items // seldom + 1 - len(drawn))))
        words = common * often + [drawn[item // seldom] for item in range(items)]
        Random(order).shuffle(words)
        return _numbered(words) + f" {len(words) + 1}. {drawn[items // seldom]}"[:characters]

    wording = haystack.wording
    question, prefix = (wording.text(name, count=COMMON_WORDS) for name in ("cwe", "cwe_prefix"))
    listed, answers = _example(Random(rng.getrandbits(64)), budget, uncommon)
    framed = wording.text("cwe_document", document=listed)
    return grown(
        build, budget, count_tokens, haystack, question=question, prefix=prefix, answers=common,
        example=wording.text("example", context=framed, question=question, prefix=prefix, answers=answers),
        extra={"haystack": "words", "frequencies": [often, seldom]},
    )


def frequencies(length: int) -> tuple[int, int]:
    """How often common and uncommon words occur."""
    return (30, 3) if length >= _SHORT else (6, 1)


def _example(rng: Random, budget: int, unused: Iterator[str]) -> tuple[str, str]:
    """The list of an example and its answers; the words are taken from ``unused``."""
    number, often, seldom = (40, 10, 3) if budget >= _SHORT else (20, 3, 1)
    words = list(itertools.islice(unused, number))
    common, uncommon = words[:COMMON_WORDS], words[COMMON_WORDS:]
    listed = common * often + uncommon * seldom
    rng.shuffle(listed)
    return _numbered(listed), _numbered(common)


def _numbered(words: Sequence[str]) -> str:
    return " ".join(f"{place}. {word}" for place, word in enumerate(words, start=1))


def _split(rng: Random) -> tuple[list[str], Iterator[str]]:
    """The common words, and the others without end: adjective-noun pairs once the English words are used up."""
    words = list(english("nouns", "adjectives", "verbs"))
    words = rng.sample(words, len(words))
    common: list[str] = []
    for word in words:
        if len(common) < COMMON_WORDS and not any(word in other or other in word for other in common):
            common.append(word)
    pairs, taken = Random(rng.getrandbits(64)), set[str]()
    endless = itertools.chain(words, (draw_new(word_pair, pairs, taken) for _ in itertools.repeat(None)))
    return common, (word for word in endless if not any(answer in word for answer in common))


# --- frequent words --------------------------------------------------------------------------------------------------
def frequent_words(rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """A text of coined words whose frequencies follow a Zeta distribution with exponent 2.

    Of ``n`` words the one of rank k occurs ``floor(n / (k² ζ(2)))`` times, ζ(2) = π²/6. The first rank is not a word
    but dots, which the question tells to ignore; the answers are the ranks 2 to 4. For n = 100::

        rank     1 (dots)  2   3  4  5  6  7  8
        times    60        15  6  3  2  1  1  0

    A text is that of the largest ``n`` which fits, and of the words by which the next one is longer the first that
    fit. So a text one word longer is the same text with one word put in. Every answer occurs more often than all
    words that are no answers.
    """
    order = rng.getrandbits(64)
    taken = set[str]()
    ranked = [DOTS, *(draw_new(_COINED, rng, taken) for _ in range(FREQUENT_WORDS))]
    places: list[tuple[Random, list[float]]] = []

    def build(words: int) -> str:
        times = counts_within(words)
        while len(ranked) < len(times):
            ranked.append(draw_new(_COINED, rng, taken))
        while len(places) < len(times):
            places.append((Random(f"{order}/{len(places)}"), []))
        text: list[tuple[float, str]] = []
        for word, number, (draws, drawn) in zip(ranked, times, places, strict=False):
            drawn += [draws.random() for _ in range(number - len(drawn))]
            text += [(place, word) for place in drawn[:number]]
        return " ".join(word for _, word in sorted(text))

    question, prefix = (haystack.wording.text(name, count=FREQUENT_WORDS) for name in ("fwe", "fwe_prefix"))
    sample = grown(build, budget, count_tokens, haystack, question=question, prefix=prefix,
                   answers=ranked[1 : FREQUENT_WORDS + 1], extra={})
    times = counts_within(len(sample.context.split()))[: FREQUENT_WORDS + 2]
    if len(times) < FREQUENT_WORDS + 2 or times[-2] == times[-1]:
        raise LengthError("needs more words for its answers to stand out")
    return replace(sample, extra={"haystack": "coined words", "frequencies": times})


def zeta_counts(words: int) -> list[int]:
    """How often each rank occurs among ``words`` words, rounded down, as far as that is not 0."""
    times = (int(words * (6 / math.pi**2) / rank**2) for rank in itertools.count(1))
    return list(itertools.takewhile(bool, times))


def counts_within(total: int) -> list[int]:
    """The counts of a text of ``total`` words."""
    first_longer = total + bisect_right(range(total, 2 * total + 1), total, key=lambda words: sum(zeta_counts(words)))
    times, longer = zeta_counts(first_longer - 1), zeta_counts(first_longer)
    for rank, (now, then) in enumerate(itertools.zip_longest(times, longer, fillvalue=0)):
        if now < then and sum(times) < total:
            times[rank:] = [then, *times[rank + 1 :]]
    return times
