"""English words, numbers and uuids, drawn from a sample's own generator.

Nothing here asks the operating system for randomness, so a seed gives the same words, numbers and uuids everywhere.
The word lists are those of the package ``wonderwords``, cut down to plain lower-case words: one written with a hyphen
or a blank could not be told from two words.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import cache
from random import Random

from wonderwords import Defaults, RandomWord


@cache
def nouns() -> tuple[str, ...]:
    return _plain_words(noun=Defaults.NOUNS)


@cache
def adjectives() -> tuple[str, ...]:
    return _plain_words(adjective=Defaults.ADJECTIVES)


@cache
def all_words() -> tuple[str, ...]:
    """Nouns, adjectives and verbs, sorted, each once: about 8 500."""
    return _plain_words(noun=Defaults.NOUNS, adjective=Defaults.ADJECTIVES, verb=Defaults.VERBS)


def _plain_words(**lists: Defaults) -> tuple[str, ...]:
    return tuple(RandomWord(enhanced_prefixes=False, **lists).filter(regex="[a-z]{2,}"))


def word_pair(rng: Random) -> str:
    """An adjective and a noun, as ``quiet-harbor``; there are about six million."""
    return f"{rng.choice(adjectives())}-{rng.choice(nouns())}"


def number(rng: Random) -> str:
    """Seven digits, the first of them not 0."""
    return str(rng.randint(1_000_000, 9_999_999))


def uuid4(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def draw_new(draw: Callable[[Random], str], rng: Random, taken: set[str], text: str = "") -> str:
    """The first draw that is neither ``taken`` nor part of ``text``; it is taken from then on."""
    while (drawn := draw(rng)) in taken or drawn in text:
        pass
    taken.add(drawn)
    return drawn
