"""Training rows with long documents, of one length or of several as a curriculum.

    parse_curriculum("50:0.3 100:0.3 200:0.4")  ->  ((50, 0.3), (100, 0.3), (200, 0.4))
    lengths_of(that, rows=10, mixed=False, seed=1)  ->  3 x 50, 3 x 100, 4 x 200
    lengths_of(that, rows=10, mixed=True, seed=1)   ->  the same ten, in an order that the seed decides

Lengths without shares have equal ones. Invariants: lengths come in the order given unless mixed; the number of rows
of each is its share of all rows, rounded so that the sum is right; rows and documents are a function of raw files,
options and seed, as in ``eval_files``; memory holds the pool and a few documents.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

from ..system.errors import MemAgentError
from .haystack import haystack
from .options import Layout
from .pool import Corpora
from .questions import Question, assemble
from .workers import in_order

Curriculum = tuple[tuple[int, float], ...]


class CurriculumError(MemAgentError, ValueError):
    """Lengths or shares that do not add up."""


def parse_curriculum(text: str) -> Curriculum:
    """Raises CurriculumError."""
    parts = [word.partition(":") for word in text.split()]
    try:
        lengths = [int(length) for length, _, _ in parts]
        shares = [float(share) if colon else 1 / len(parts) for _, colon, share in parts]
    except ValueError:
        lengths, shares = [], []
    if not lengths or min(lengths) < 1 or len(set(lengths)) < len(lengths):
        raise CurriculumError(f"documents {text!r}: allowed: different numbers, perhaps with shares: 50:0.5 200:0.5")
    if not all(share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise CurriculumError(f"documents {text!r}: the shares must be above 0 and add up to 1")
    return tuple(zip(lengths, shares, strict=True))


def lengths_of(curriculum: Curriculum, rows: int, mixed: bool, seed: int) -> list[int]:
    """The number of documents of every row."""
    counts = [int(share * rows) for _, share in curriculum]
    by_rest = sorted(range(len(counts)), key=lambda i: counts[i] - curriculum[i][1] * rows)
    for i in by_rest[: rows - sum(counts)]:
        counts[i] += 1
    lengths = [length for (length, _), count in zip(curriculum, counts, strict=True) for _ in range(count)]
    assert len(lengths) == rows
    if mixed:
        random.Random(f"{seed}/curriculum").shuffle(lengths)
    return lengths


def training_questions(
    corpora: Corpora, lengths: Sequence[int], seed: int, processes: int, layout: Layout = Layout.CLEAN
) -> Generator[Question, None, None]:
    """A training question for each of ``corpora.questions``, of the length beside it. Raises HaystackError."""

    def context(task: tuple[int, int]) -> str:
        index, length = task
        numbers = haystack(corpora.pool, corpora.questions[index], length, seed, layout)
        return assemble(corpora.pool.texts[number] for number in numbers)

    with in_order(context, enumerate(lengths), processes) as contexts:
        for question, length, text in zip(corpora.questions, lengths, contexts, strict=True):
            extras = {"id": question.id, "num_docs": length}
            supporting = {"supporting": question.supporting} if question.supporting else {}
            yield Question(question.question, question.answers, text, extras=extras | supporting)
