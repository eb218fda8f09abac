"""A question's gold documents hidden among distractors, in an order that tells nothing.

``haystack`` gives the numbers of a pool's documents in reading order::

    haystack(pool, question with gold (7, 3), documents=5, seed=42)  ->  (3, 90, 7, 12, 55)

Invariants:
- every gold document is there once, every other document at most once, and there are exactly as many as asked for;
- no distractor holds an answer, as whole words in SQuAD form, unless the layout keeps those that came with
  the question. Answers such as yes and no are not looked for: their words stand everywhere and prove nothing;
- distractors that came with the question are taken first, the rest at random from the whole pool;
- order and choice come from a generator of this question, length and seed alone: every position is equally likely for
  a gold document, and the result does not depend on other questions, on processes or on their number. The printed
  numbers count documents as they stand, so they say nothing that the order does not say.

``Layout.PUBLISHED`` gives up all of these but the first, to place documents as MemAgent's and ReMemR1's generators do
(MemAgent's different_docs_eval.py, ReMemR1's process_test.py): all paragraphs of the question, then strangers of any
content, and the list shuffled by ``random.Random(4)``. A question's k-th paragraph therefore stands at the same place
in every document of a length. The strangers are other ones than there: which ones the generators took hung on how
their worker processes were scheduled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import islice

from ..rewards.answers import AnswerKind, kind_of
from ..rewards.qa_metrics import normalise_squad
from .pool import Pool, PoolQuestion
from .rows import DataError

_PUBLISHED_SHUFFLE = 4


class Layout(StrEnum):
    """Which distractors get in, and where documents stand; the values are options."""

    CLEAN = "clean"
    """The default: no distractor holds an answer, every order is equally likely."""
    KEEP_OWN = "keep-distractors"
    """The same, but with all paragraphs that came with the question."""
    PUBLISHED = "published-layout"
    """As the published generators place them."""


def haystack(
    pool: Pool, question: PoolQuestion, documents: int, seed: int, layout: Layout = Layout.CLEAN
) -> tuple[int, ...]:
    """Numbers of the documents, in reading order.

    Raises:
        DataError: more documents that must be there than ``documents``, or too few others that can be.
    """
    must = {Layout.CLEAN: question.gold, Layout.KEEP_OWN: question.gold + question.own}
    chosen = list(must.get(layout, question.paragraphs))
    if len(chosen) > documents:
        what = "gold documents" if layout is Layout.CLEAN else f"paragraphs of its own (--{layout})"
        raise DataError(
            f"question {question.id} has {len(chosen)} {what}, more than the {documents} asked for; "
            "choose a greater length"
        )
    rng = random.Random(f"{seed}/{question.id}/{documents}")
    is_clean = (lambda number: True) if layout is Layout.PUBLISHED else _without_answer(pool, question)
    taken = frozenset(chosen)
    own = [number for number in question.own if number not in taken and is_clean(number)]
    rng.shuffle(own)
    chosen += own[: documents - len(chosen)]
    tried = {*question.gold, *question.own}
    strangers = (number for number in _permutation(rng, len(pool)) if number not in tried and is_clean(number))
    chosen += islice(strangers, documents - len(chosen))
    if len(chosen) < documents:
        raise DataError(
            f"question {question.id}: {documents} documents asked for, but of the {len(pool)} in the pool only "
            f"{len(chosen)} can be used (others hold its answer); give more raw files or a smaller length"
        )
    (random.Random(_PUBLISHED_SHUFFLE) if layout is Layout.PUBLISHED else rng).shuffle(chosen)
    return tuple(chosen)


def _without_answer(pool: Pool, question: PoolQuestion) -> Callable[[int], bool]:
    """Whether a document holds none of the answers."""
    answers = [answer for answer in question.answers if kind_of(answer) is not AnswerKind.CHOICE]
    plain = [f" {form} " for answer in answers if (form := normalise_squad(answer))]
    articles = [  # "The The" is all articles, of which the plain form has none
        f" {form} " for answer in answers
        if not normalise_squad(answer) and (form := normalise_squad(answer, keep_articles=True))
    ]

    def is_clean(number: int) -> bool:
        words = pool.words(number)
        if any(form in words for form in plain):
            return False
        text = f" {normalise_squad(pool[number], keep_articles=True)} " if articles else ""
        return not any(form in text for form in articles)

    return is_clean


def _permutation(rng: random.Random, size: int) -> Iterator[int]:
    """All numbers below ``size`` in random order, at a cost of those taken only."""
    moved: dict[int, int] = {}
    for last in range(size - 1, -1, -1):
        at = rng.randrange(last + 1)
        yield moved.get(at, at)
        moved[at] = moved.get(last, last)
