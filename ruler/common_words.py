"""Common words: a numbered list in which ten words occur far more often than all others.

====================  ===================  ====================
length                each common word     each uncommon word
====================  ===================  ====================
4096 tokens or more   30 times             3 times
less                  6 times              once
====================  ===================  ====================

A solved example comes before, as in RULER: a list of 10 common words 10 times and 30 uncommon ones 3 times; under 4096
tokens 3 times, and 10 once (``common_words_extraction.py``, c3f5e3b). Its words are none of the document's, so that no
answer can be copied from it.

The list grows by uncommon words. The last of them may occur less often than its fellows, and the last item of all, an
uncommon one, may be cut short so that the list ends where the budget does.

Invariant: no word of the list contains a common word, other than that common word itself; so an answer found in a
reply really is that answer. When the English words are used up, adjective-noun pairs go on as uncommon words.

Example (2 common words 3 times, uncommon once, the last item cut)::

    1. tea 2. oak 3. tea 4. ship 5. oak 6. oak 7. tea 8. lam
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

from .length import fill
from .sample import CountTokens, Haystack, RulerSample, whole_length
from .words import all_words, draw_new, word_pair

COMMON_WORDS = 10
_SHORT = 4096
_EXAMPLE, _SHORT_EXAMPLE = (40, 10, 3), (20, 3, 1)
"""Words, and how often the common and the uncommon ones occur."""
_SIZES_PER_ITEM = 32
"""The steps of ``fill``: whole items, and characters of the item that is cut."""


def frequencies(length: int) -> tuple[int, int]:
    """How often common and uncommon words occur."""
    return (30, 3) if length >= _SHORT else (6, 1)


def common_words(name: str, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> RulerSample:
    """See ``sample.py``."""
    often, seldom = frequencies(budget)
    common, uncommon = _split(rng)
    order = rng.getrandbits(64)
    drawn: list[str] = []

    def build(size: int) -> str:
        items, letters = divmod(size, _SIZES_PER_ITEM)
        drawn.extend(itertools.islice(uncommon, max(0, items // seldom + 1 - len(drawn))))
        words = common * often + [drawn[item // seldom] for item in range(items)]
        Random(order).shuffle(words)
        return _numbered(words) + f" {len(words) + 1}. {drawn[items // seldom]}"[:letters]

    question = haystack.wording.cwe.format(count=COMMON_WORDS)
    prefix = haystack.wording.cwe_prefix.format(count=COMMON_WORDS)
    listed, answers = _example(Random(rng.getrandbits(64)), budget, uncommon)
    framed = haystack.wording.cwe_document.format(document=listed)
    example = haystack.wording.example.format(context=framed, question=question, prefix=prefix, answers=answers)
    filled = fill(build, whole_length(count_tokens, haystack, question, prefix, example), budget)
    return RulerSample(
        task=name,
        input=question,
        context=filled.context,
        answers=tuple(common),
        answer_prefix=prefix,
        length_tokens=filled.tokens,
        extra={"haystack": "words", "frequencies": [often, seldom]},
        example=example,
    )


def _example(rng: Random, budget: int, unused: Iterator[str]) -> tuple[str, str]:
    """The list of an example and its answers; the words are taken from ``unused``."""
    number, often, seldom = _EXAMPLE if budget >= _SHORT else _SHORT_EXAMPLE
    words = list(itertools.islice(unused, number))
    common, uncommon = words[:COMMON_WORDS], words[COMMON_WORDS:]
    listed = common * often + uncommon * seldom
    rng.shuffle(listed)
    return _numbered(listed), _numbered(common)


def _numbered(words: Sequence[str]) -> str:
    return " ".join(f"{place}. {word}" for place, word in enumerate(words, start=1))


def _split(rng: Random) -> tuple[list[str], Iterator[str]]:
    """The common words, and the others without end."""
    words = rng.sample(all_words(), len(all_words()))
    common: list[str] = []
    for word in words:
        if len(common) == COMMON_WORDS:
            break
        if not any(word in other or other in word for other in common):
            common.append(word)
    pairs = Random(rng.getrandbits(64))
    return common, (word for word in itertools.chain(words, _pairs(pairs)) if not _contains(word, common))


def _pairs(rng: Random) -> Iterator[str]:
    taken: set[str] = set()
    while True:
        yield draw_new(word_pair, rng, taken)


def _contains(word: str, common: Sequence[str]) -> bool:
    return any(answer in word for answer in common)
