"""Numbers of documents: on command lines, in names of evaluation files, and over the rows of a curriculum.

    parse_lengths("50 200")                     ->  (50, 200)
    eval_name(50)                               ->  eval_50.json
    parse_curriculum("50:0.3 100:0.3 200:0.4")  ->  ((50, 0.3), (100, 0.3), (200, 0.4))
    lengths_of(that, rows=10)                   ->  3 x 50, 3 x 100, 4 x 200, in this order

Lengths without shares have equal ones. The rows of each are its share of all rows, rounded so that the sum is right.
"""

from __future__ import annotations

from .rows import DataError

LENGTHS = (50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600)
"""The lengths of the published results."""
INDEX_ONLY_ABOVE = 10_000
"""Longer documents are given by numbers, in the published files as well."""

Curriculum = tuple[tuple[int, float], ...]


def eval_name(length: int | str) -> str:
    return f"eval_{length}.json"


def parse_lengths(text: str) -> tuple[int, ...]:
    """Raises DataError."""
    words = text.split()
    wrong = [word for word in words if not word.isdecimal() or int(word) == 0]
    if wrong or not words:
        raise DataError(f"length {(wrong or [''])[0]!r:.40}: allowed: numbers above 0, such as 50 200")
    return tuple(dict.fromkeys(map(int, words)))


def parse_curriculum(text: str) -> Curriculum:
    """Raises DataError."""
    parts = [word.partition(":") for word in text.split()]
    try:
        curriculum = tuple((int(length), float(share) if colon else 1 / len(parts)) for length, colon, share in parts)
    except ValueError:
        curriculum = ()
    lengths, shares = {length for length, _ in curriculum}, [share for _, share in curriculum]
    if not lengths or min(lengths) < 1 or len(lengths) < len(parts):
        raise DataError(f"documents {text!r}: allowed: different numbers, perhaps with shares: 50:0.5 200:0.5")
    if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise DataError(f"documents {text!r}: the shares must be above 0 and add up to 1")
    return curriculum


def lengths_of(curriculum: Curriculum, rows: int) -> list[int]:
    """The number of documents of every row."""
    counts = [int(share * rows) for _, share in curriculum]
    by_rest = sorted(range(len(counts)), key=lambda i: counts[i] - curriculum[i][1] * rows)
    for i in by_rest[: rows - sum(counts)]:
        counts[i] += 1
    return [length for (length, _), count in zip(curriculum, counts, strict=True) for _ in range(count)]
