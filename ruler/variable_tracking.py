"""Variable tracking: a chain of assignments scattered over a document of short sentences.

A solved example comes before, as in RULER: a document of at most 500 tokens with its question, in which a chain as
long has names of 3 letters and a value of its own (``variable_tracking.py``, c3f5e3b).

Invariants:
- the chain's statements stand in their order, each once, on lines of their own;
- all variables are different, the example's too, and all of the chain have the value that is asked for.

Example with 2 hops::

    VAR QWERT = 48213  ...  VAR ASDFG = VAR QWERT  ...  VAR ZXCVB = VAR ASDFG
    answers for 48213: QWERT, ASDFG, ZXCVB
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from .filler import Filler, place
from .length import fill
from .sample import CountTokens, Haystack, RulerSample, whole_length
from .wording import Sentences
from .words import draw_new

_NAME_LETTERS, _EXAMPLE_LETTERS = 5, 3
_EXAMPLE_TOKENS = 500


@dataclass(frozen=True, slots=True)
class _Chain:
    variables: Sequence[str]
    value: str
    depths: Sequence[float]

    def document(self, wording: Sentences) -> Callable[[int], str]:
        """The document by its size."""
        first = f"VAR {self.variables[0]} = {self.value}"
        statements = [first, *(f"VAR {new} = VAR {old}" for old, new in itertools.pairwise(self.variables))]
        filler = Filler(itertools.repeat(wording.noise), "\n")
        return lambda size: place(filler.text(size), statements, self.depths, "\n")

    def asked(self, text: str) -> str:
        return text.format(value=self.value, count=len(self.variables))


def variable_tracking(
    name: str, hops: int, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack
) -> RulerSample:
    """One chain of ``hops`` + 1 variables; see ``sample.py``."""
    wording, taken = haystack.wording, set[str]()
    chain = _chain(rng, hops, _NAME_LETTERS, wording, taken)
    example = _example(_chain(rng, hops, _EXAMPLE_LETTERS, wording, taken), count_tokens, wording)
    question, prefix = chain.asked(wording.vt), chain.asked(wording.vt_prefix)
    length = whole_length(count_tokens, haystack, question, prefix, example)
    filled = fill(chain.document(wording), length, budget)
    return RulerSample(
        task=name,
        input=question,
        context=filled.context,
        answers=tuple(chain.variables),
        answer_prefix=prefix,
        length_tokens=filled.tokens,
        extra={"haystack": "repeated sentences", "value": chain.value,
               "depths": [round(depth, 4) for depth in chain.depths]},
        example=example,
    )


def _chain(rng: Random, hops: int, letters: int, wording: Sentences, taken: set[str]) -> _Chain:
    variables = [draw_new(partial(_name, letters), rng, taken, wording.noise) for _ in range(hops + 1)]
    value = draw_new(_value, rng, taken)
    return _Chain(variables, value, sorted(rng.random() for _ in variables))


def _example(chain: _Chain, count_tokens: CountTokens, wording: Sentences) -> str:
    """Its 500 tokens are those of the document with its question and prefix, as in RULER: the answers come on top."""
    question, prefix = chain.asked(wording.vt), chain.asked(wording.vt_prefix)
    solved = partial(wording.example.format, question=question, prefix=prefix)

    def with_answers(context: str, answers: str) -> str:
        return solved(context=wording.vt_document.format(document=context), answers=answers)

    def length(context: str) -> int:
        return count_tokens(with_answers(context, ""))

    filled = fill(chain.document(wording), length, _EXAMPLE_TOKENS)
    return with_answers(filled.context, " ".join(chain.variables))


def _name(letters: int, rng: Random) -> str:
    return "".join(rng.choices(string.ascii_uppercase, k=letters))


def _value(rng: Random) -> str:
    return str(rng.randint(10_000, 99_999))
