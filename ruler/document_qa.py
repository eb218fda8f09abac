"""Question answering: the documents that hold the answer among others of the same pool.

The other documents come in this order until the length is reached: the question's own (see ``data/ruler_corpus.py``),
then the rest of the pool, both shuffled; when the pool is used up, they come again. All but the last are shuffled
together with the gold ones; the last may be cut short so that the text ends where the budget does.

Invariant: every gold document is there whole and exactly once.

Example, document 2 gold, 5 its own, pool of 6::

    Document 1:\\n<5>\\n\\nDocument 2:\\n<2>\\n\\nDocument 3:\\n<beginning of 0>
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

from ..data.pool import PoolQuestion
from ..data.ruler_corpus import Corpus
from .length import fill
from .sample import CountTokens, Haystack, RulerError, RulerSample, whole_length


def document_qa(name: str, rng: Random, budget: int, count_tokens: CountTokens, haystack: Haystack) -> RulerSample:
    """See ``sample.py``."""
    corpus, question = haystack.corpus, haystack.question
    assert corpus is not None and question is not None, f"{name} is made from a corpus"
    others, drawn = _others(corpus, question, rng), list[int]()
    order = rng.getrandbits(64)

    def build(size: int) -> str:
        """The gold documents and the first ``size`` characters of what is added to them."""
        whole: list[int] = []
        while True:
            if len(whole) == len(drawn):
                drawn.append(next(others))
            added = _entry(len(question.gold) + len(whole) + 1, corpus.documents[drawn[len(whole)]])
            if len(added) > size:
                break
            size -= len(added)
            whole.append(drawn[len(whole)])
        numbers = [*question.gold, *whole]
        Random(order).shuffle(numbers)
        entries = [_entry(place, corpus.documents[number]) for place, number in enumerate(numbers, start=1)]
        return "".join([*entries, added[:size]]).removeprefix("\n\n")

    text = haystack.wording.qa.format(question=question.question)
    prefix = haystack.wording.qa_prefix
    filled = fill(build, whole_length(count_tokens, haystack, text, prefix), budget)
    return RulerSample(
        task=name,
        input=text,
        context=filled.context,
        answers=question.answers,
        answer_prefix=prefix,
        length_tokens=filled.tokens,
        extra={"haystack": corpus.name},
    )


def _entry(place: int, document: str) -> str:
    return f"\n\nDocument {place}:\n{document}"


def _others(corpus: Corpus, question: PoolQuestion, rng: Random) -> Iterator[int]:
    """Numbers of documents to mix in, without end."""
    used = {*question.gold, *question.own}
    rest = [number for number in range(len(corpus.documents)) if number not in used]
    pool = [*rng.sample(question.own, len(question.own)), *rng.sample(rest, len(rest))]
    if not pool:
        raise RulerError(f"{corpus.name}: no document besides those that one question needs; give a larger file")
    return itertools.cycle(pool)
