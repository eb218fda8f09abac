"""Statements in a haystack: needles that give keys their values (``niah``), and chains of variables (``vt``)."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal

from .sample import DRAWS, CountTokens, Haystack, Sample, draw_new, fill, filler, grown, letters, place
from .wording import Wording

_ESSAY_DEPTHS = [round(100 * step / 39) / 100 for step in range(40)]
"""RULER's 40 places from the start to the end, in whole percents."""
_EXAMPLE_TOKENS = 500
_NAME, _EXAMPLE_NAME = letters(string.ascii_uppercase, 5), letters(string.ascii_uppercase, 3)


@dataclass(frozen=True, slots=True)
class Niah:
    """One configuration of the needle task."""

    haystack: Literal["noise", "essay", "needles"]
    """One line of short sentences, over and over; running text; needles of other keys, so that nearly every line is a
    distractor."""
    key: Literal["word", "uuid"] = "word"
    value: Literal["number", "uuid"] = "number"
    keys: int = 1
    """How many keys have needles besides those of the haystack."""
    values: int = 1
    """Needles per key, each with a value of its own."""
    queries: int = 1
    """How many of the keys are asked for."""

    @property
    def words(self) -> str:
        """What its texts in a wording begin with."""
        return "niah_one" if self.queries * self.values == 1 else "niah_many"


def niah(form: Niah, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> Sample:
    """Needles in a haystack, and a question for the values of some of their keys.

    No two needles of a document share a key (unless it is the multivalue key) or a value; in an essay, neither keys
    nor values stand in the text already. The answers are in the order of the question. Example (keys=2)::

        context  "... the tide. A magic number of red-fox is 4021877. Nobody spoke. A magic number of odd-key is
                 1350026."
        input    "Which magic number of odd-key does the text state?"
        answers  ("1350026",)
    """
    wording, taken = haystack.wording, set[str]()
    is_essay = form.haystack == "essay"
    avoid = haystack.essay.text if is_essay else ""
    kind = {"kind": form.value, "kinds": f"{form.value}s"}

    def needle(key: str, value: str) -> str:
        return wording.text("needle", key=key, value=value, **kind)

    def distractors() -> Iterator[str]:
        while True:
            key = draw_new(DRAWS[form.key], rng, taken)
            yield needle(key, draw_new(DRAWS[form.value], rng, taken))

    values: dict[str, list[str]] = {}
    for _ in range(form.keys):
        key = draw_new(DRAWS[form.key], rng, taken, avoid)
        values[key] = [draw_new(DRAWS[form.value], rng, taken, avoid) for _ in range(form.values)]
    needles = [needle(key, value) for key, own in values.items() for value in own]
    rng.shuffle(needles)
    asked = rng.sample(list(values), form.queries)
    if is_essay:
        depths = sorted(rng.sample(_ESSAY_DEPTHS, len(needles)))
        joint, source = " ", haystack.essay.name
        text = filler(itertools.repeat(haystack.essay.text), joint)
    else:
        depths = sorted(rng.random() for _ in needles)
        joint, source = "\n", "repeated sentences" if form.haystack == "noise" else "needles"
        text = filler(itertools.repeat(wording.texts["noise"]) if form.haystack == "noise" else distractors(), joint)
    kind["keys"] = asked[0] if len(asked) == 1 else f"{', '.join(asked[:-1])}, and {asked[-1]}"
    return grown(
        lambda size: place(text(size), needles, depths, joint), budget, count_tokens, haystack,
        question=wording.text(form.words, **kind), prefix=wording.text(f"{form.words}_prefix", **kind),
        answers=[value for key in asked for value in values[key]],
        extra={"haystack": source, "keys": asked, "depths": [round(depth, 4) for depth in depths]},
    )


class _Chain:
    """Variables of which all have one value: the first gets it, each other one that of the variable before it."""

    def __init__(self, rng: Random, hops: int, is_example: bool, wording: Wording, taken: set[str]) -> None:
        name = _EXAMPLE_NAME if is_example else _NAME
        self.variables = [draw_new(name, rng, taken, wording.texts["noise"]) for _ in range(hops + 1)]
        self.value = draw_new(lambda rng: str(rng.randint(10_000, 99_999)), rng, taken)
        self.depths = sorted(rng.random() for _ in self.variables)
        self.question, self.prefix = (
            wording.text(text, value=self.value, count=len(self.variables)) for text in ("vt", "vt_prefix")
        )
        self._filler = filler(itertools.repeat(wording.texts["noise"]), "\n")

    def document(self, size: int) -> str:
        pairs = itertools.pairwise(self.variables)
        statements = [f"VAR {self.variables[0]} = {self.value}", *(f"VAR {new} = VAR {old}" for old, new in pairs)]
        return place(self._filler(size), statements, self.depths, "\n")


def variable_tracking(
    hops: int, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack
) -> Sample:
    """A chain of ``hops`` + 1 assignments, in their order, scattered over a document of short sentences.

    A solved example comes before, as in RULER: a document of at most 500 tokens with its question, in which a chain
    as long has names of 3 letters and a value of its own (``variable_tracking.py``, c3f5e3b); its answers come on top
    of the 500. All variables are different, the example's too. Example with 2 hops::

        VAR QWERT = 48213  ...  VAR ASDFG = VAR QWERT  ...  VAR ZXCVB = VAR ASDFG
        answers for 48213: QWERT, ASDFG, ZXCVB
    """
    wording, taken = haystack.wording, set[str]()
    chain = _Chain(rng, hops, False, wording, taken)
    other = _Chain(rng, hops, True, wording, taken)

    def example(context: str, answers: str) -> str:
        framed = wording.text("vt_document", document=context)
        return wording.text("example", context=framed, question=other.question, prefix=other.prefix, answers=answers)

    shown = fill(other.document, lambda context: count_tokens(example(context, "")), _EXAMPLE_TOKENS).context
    return grown(
        chain.document, budget, count_tokens, haystack, question=chain.question, prefix=chain.prefix,
        answers=chain.variables, example=example(shown, " ".join(other.variables)),
        extra={"haystack": "repeated sentences", "value": chain.value,
               "depths": [round(depth, 4) for depth in chain.depths]},
    )
