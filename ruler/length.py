"""Grows a document until it has the wanted number of tokens.

A builder turns a size (characters, words: any whole number) into a document. How many tokens a size makes depends on
the tokenizer and is known only by counting, and counting a document of a million tokens takes seconds. So the price of
a step is learnt on small documents first; then one or two full counts are enough.

Invariants:
- the result has at most ``budget`` tokens and at least 99 % of them;
- the same builder, counter and budget give the same result.

Example, one token per character: ``fill(lambda size: "x" * size, len, 1000)`` looks at 0, 60, 125 and 996 characters
and returns 996.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

_TYPICAL_CHARACTERS_PER_TOKEN = 4.0


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
    """The document of a size whose tokens are within 1 % below ``budget``.

    ``count`` must grow with the size, apart from a jitter smaller than that 1 %.

    Raises:
        LengthError: even the document of size 0 is longer than ``budget``, or neighbouring sizes jump over the window.
    """

    def measure(size: int) -> Filled:
        context = build(size)
        return Filled(size, context, count(context))

    under, over, price = measure(0), None, _TYPICAL_CHARACTERS_PER_TOKEN
    if under.tokens > budget:
        raise LengthError(f"takes at least {under.tokens} tokens with this tokenizer")
    rehearsals = iter((budget // 64, budget // 8))
    for turn in itertools.count():
        if under.tokens >= shortest_allowed(budget):
            return under
        if over is None:
            aim = next((tokens for tokens in rehearsals if tokens > 2 * under.tokens), _target(budget))
            size = under.size + max(1, int((aim - under.tokens) * price))
        elif over.size - under.size == 1:
            break
        else:
            size = _between(under, over, budget, halve=turn % 3 == 2)
        probe = measure(size)
        if probe.tokens > budget:
            over = probe
        else:
            price = (probe.size - under.size) / max(1, probe.tokens - under.tokens)
            under = probe
    assert over is not None
    raise LengthError(f"can have {under.tokens} or {over.tokens} tokens with this tokenizer, nothing between")


def _target(budget: int) -> int:
    return budget - budget // 250


def _between(under: Filled, over: Filled, budget: int, *, halve: bool) -> int:
    """A size strictly between the two: where a straight line meets the target, or the middle.

    Halving now and then bounds the number of counts where the line is a bad guess.
    """
    if halve:
        return (under.size + over.size) // 2
    share = (_target(budget) - under.tokens) / (over.tokens - under.tokens)
    guess = under.size + int(share * (over.size - under.size))
    return min(max(guess, under.size + 1), over.size - 1)
