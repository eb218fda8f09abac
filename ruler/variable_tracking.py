"""Variable tracking: a chain of assignments scattered over a document of short sentences.

Invariants:
- the chain's statements stand in their order, each once, on lines of their own;
- all variables are different, and all of the chain have the value that is asked for.

Example with 2 hops::

    VAR QWERT = 48213  ...  VAR ASDFG = VAR QWERT  ...  VAR ZXCVB = VAR ASDFG
    answers for 48213: QWERT, ASDFG, ZXCVB
"""

from __future__ import annotations

import itertools
import string
from random import Random

from .filler import Filler, place
from .length import fill
from .sample import CountTokens, Haystack, RulerSample
from .words import draw_new

_NAME_LETTERS = 5


def variable_tracking(
    name: str, hops: int, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack
) -> RulerSample:
    """One chain of ``hops`` + 1 variables; see ``sample.py``."""
    wording, taken = haystack.wording, set[str]()
    variables = [draw_new(_variable, rng, taken, wording.noise) for _ in range(hops + 1)]
    value = str(rng.randint(10_000, 99_999))
    first = f"VAR {variables[0]} = {value}"
    statements = [first, *(f"VAR {new} = VAR {old}" for old, new in itertools.pairwise(variables))]
    depths = sorted(rng.random() for _ in statements)
    question = wording.vt.format(value=value, count=len(variables))
    filler, asking = Filler(itertools.repeat(wording.noise), "\n"), count_tokens(question)
    filled = fill(
        lambda size: place(filler.text(size), statements, depths, "\n"),
        lambda context: count_tokens(context) + asking,
        budget,
    )
    return RulerSample(
        task=name,
        input=question,
        context=filled.context,
        answers=tuple(variables),
        answer_prefix=wording.vt_prefix.format(value=value, count=len(variables)),
        length_tokens=filled.tokens,
        extra={"haystack": "repeated sentences", "value": value, "depths": [round(depth, 4) for depth in depths]},
    )


def _variable(rng: Random) -> str:
    return "".join(rng.choices(string.ascii_uppercase, k=_NAME_LETTERS))
