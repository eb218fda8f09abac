"""Common words: a numbered list in which ten words occur far more often than all others.

====================  ===================  ====================
length                each common word     each uncommon word
====================  ===================  ====================
4096 tokens or more   30 times             3 times
less                  6 times              once
====================  ===================  ====================

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
from .sample import CountTokens, Haystack, RulerSample
from .words import all_words, draw_new, word_pair

COMMON_WORDS = 10
_SHORT = 4096
_SIZES_PER_ITEM = 32
"""The steps of ``fill``: whole items, and characters of the item that is cut."""


def frequencies(length: int) -> tuple[int, int]:
    """How often common and uncommon words occur."""
    return (30, 3) if length >= _SHORT else (6, 1)


def common_words(name: str, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> RulerSample:
    """See ``sample.py``."""
    often, seldom = frequencies(budget + haystack.taken)
    common, uncommon = _split(rng)
    order = rng.getrandbits(64)
    drawn: list[str] = []

    def build(size: int) -> str:
        items, letters = divmod(size, _SIZES_PER_ITEM)
        drawn.extend(itertools.islice(uncommon, max(0, items // seldom + 1 - len(drawn))))
        words = common * often + [drawn[item // seldom] for item in range(items)]
        Random(order).shuffle(words)
        whole = " ".join(f"{place}. {word}" for place, word in enumerate(words, start=1))
        return whole + f" {len(words) + 1}. {drawn[items // seldom]}"[:letters]

    question = haystack.wording.cwe.format(count=COMMON_WORDS)
    asking = count_tokens(question)
    filled = fill(build, lambda context: count_tokens(context) + asking, budget)
    return RulerSample(
        task=name,
        input=question,
        context=filled.context,
        answers=tuple(common),
        answer_prefix=haystack.wording.cwe_prefix.format(count=COMMON_WORDS),
        length_tokens=filled.tokens,
        extra={"haystack": "words", "frequencies": [often, seldom]},
    )


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
