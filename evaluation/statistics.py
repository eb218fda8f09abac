"""Intervals and tests over questions.

What is resampled is the QUESTION: its k samples are averaged first, because they are not independent of each other.

Worked example, three questions of two samples each::

    rows    q1: 1 0   q2: 1 1   q3: 0 0
    values  0.5       1.0       0.0        mean 0.5
    one bootstrap draw: three questions with replacement, say q1 q3 q3 -> mean 1/6; the interval is the range from the
    2.5th to the 97.5th percentile of 10,000 such means

Where every question scored 0, or every one 1, no draw differs from another; the exact binomial bound stands in: two
questions, both wrong, give 0 to 84, not 0 to 0.

Two runs are compared on the questions both have answered: the difference of each question's two values, the bootstrap
interval of its mean, and a test that flips the signs of the differences. Under the null hypothesis that the runs are
equally good both signs of a difference are equally likely; p is the share of sign patterns whose mean is as far from 0
as the one found. Differences 1 1 1 give p = 2/8: of the eight patterns +++ and --- are as far.

Invariants: seeded, so the same rows give the same numbers; up to ``EXACT`` differences that are not 0 all patterns
are counted, above that 10,000 are drawn and the one found counts as one of them, so p is never 0 and a p at the
``floor`` that its number of patterns allows says only that it is that small.

Drawing n questions with replacement only needs how often each distinct VALUE is drawn, which is multinomial: the same
distribution at a cost that does not grow with n, as long as the values are few. Signs of equal differences are drawn
together as well, as a binomial count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
CONFIDENCE = 0.95
EXACT = 13
"""Differences whose 2^13 sign patterns are fewer than the patterns that would be drawn."""
_DRAWN_AT_ONCE = 2_000_000
"""Numbers in memory at a time."""

Values = NDArray[np.float64]
Q = TypeVar("Q", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Estimate:
    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """``difference.mean`` is second minus first; ``first`` and ``second`` are means over the same questions."""

    first: float
    second: float
    difference: Estimate
    p: float
    floor: float
    """The smallest p that the test can give here."""
    resamples: int
    """Sign patterns that were drawn; 0 where all were counted."""

    @property
    def p_text(self) -> str:
        """As it is printed: a p at its floor says so."""
        if self.p > self.floor * (1 + 1e-9):
            return f"{self.p:.4f}"
        if self.resamples:
            return f"< {1 / self.resamples:.4f} ({self.resamples:,} resamples)"
        return f"{self.p:.4f} (lowest possible)"


def interval(
    values: Iterable[float], *, full: float | None = None, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """Mean and bootstrap percentile interval of one value per question; ``full`` is a score's highest value."""
    array = np.fromiter(values, dtype=np.float64)
    tail = (1 - CONFIDENCE) / 2
    if full is not None and array[0] in (0.0, full) and np.all(array == array[0]):
        least = full * tail ** (1 / array.size)
        return Estimate(full, least, full, array.size) if array[0] else Estimate(0.0, 0.0, full - least, array.size)
    rng = np.random.default_rng(seed)
    distinct, counts = np.unique(array, return_counts=True)
    share = counts / array.size
    means = _drawn(lambda part: rng.multinomial(array.size, share, size=part) @ distinct, resamples, distinct.size)
    low, high = np.quantile(means / array.size, [tail, 1 - tail])
    mean = float(array.mean())
    return Estimate(mean, min(mean, float(low)), max(mean, float(high)), array.size)  # equal, except for rounding


def compare(first: Mapping[Q, float], second: Mapping[Q, float], *, seed: int = 0) -> Comparison:
    """Second against first on the questions that both have."""
    shared = [question for question in first if question in second]
    ours = np.array([first[q] for q in shared])
    theirs = np.array([second[q] for q in shared])
    differences = theirs - ours
    differences[np.abs(differences) <= _slack(0.0)] = 0.0
    p = sign_flip_p(differences, np.random.default_rng(seed))
    unlike = int(np.count_nonzero(differences))
    drawn = 0 if unlike <= EXACT else RESAMPLES
    floor = 1 / (drawn + 1) if drawn else 2.0 ** min(0, 1 - unlike)
    return Comparison(float(ours.mean()), float(theirs.mean()), interval(differences, seed=seed), p, floor, drawn)


def sign_flip_p(differences: Values, rng: np.random.Generator) -> float:
    """Two-sided p of the mean difference."""
    sizes, counts = np.unique(np.abs(differences[differences != 0]), return_counts=True)
    found = abs(float(differences.sum()))
    if counts.sum() <= EXACT:
        patterns = np.arange(2 ** counts.sum())[:, None] >> np.arange(counts.sum()) & 1
        sums = (2.0 * patterns - 1.0) @ np.repeat(sizes, counts)
        return float(np.mean(np.abs(sums) >= found - _slack(found)))
    # A sum under random signs: of counts[i] differences of size sizes[i] a binomial number keeps its sign.
    sums = _drawn(
        lambda part: (2.0 * rng.binomial(counts, 0.5, (part, sizes.size)) - counts) @ sizes, RESAMPLES, sizes.size)
    return float((1 + np.sum(np.abs(sums) >= found - _slack(found))) / (1 + sums.size))


def _slack(found: float) -> float:
    """Sums and means of the same numbers in another order differ by rounding."""
    return 1e-9 * max(1.0, found)


def _drawn(draw: Callable[[int], Values], draws: int, width: int) -> Values:
    """``draws`` numbers, in parts small enough for the ``width`` numbers behind each to be in memory."""
    most = max(1, _DRAWN_AT_ONCE // max(1, width))
    return np.concatenate([draw(min(most, draws - start)) for start in range(0, draws, most)])


# --- several answers to a question -----------------------------------------------------------------------------------


def expected_best(values: Sequence[float]) -> float:
    """The mean of the best of k draws, with replacement, from a question's k answers.

    What verl's ``process_validation_metrics`` estimates with 1,000 draws, as an expectation: the i-th smallest is the
    best with probability (i/k)^k - ((i-1)/k)^k. Example: 1 of 4 answers is right: 1 - (3/4)^4 = 0.684.
    """
    k = len(values)
    return sum(value * ((i / k) ** k - ((i - 1) / k) ** k) for i, value in enumerate(sorted(values), 1))


def pass_at(k: int, answers: int, right: int) -> float:
    """The probability that of k answers to a question, drawn without replacement from those that it has, one is right.

    1 - C(n - c, k) / C(n, k), of n answers c being right (Chen et al. 2021, arXiv 2107.03374, equation 1): the
    unbiased estimate of the chance that one of k fresh answers is right. Example: 1 of 4 is right: pass@1 1/4, pass@2
    1 - 3/6 = 1/2, pass@4 1.
    """
    return 1 - comb(answers - right, k) / comb(answers, k)


def pass_sizes(answers: int) -> list[int]:
    """The k of which pass@k is told where a question has so many answers: powers of two, and all of them."""
    powers = [2**i for i in range(answers.bit_length()) if 2**i <= answers]
    return list(dict.fromkeys([*powers, answers])) if answers else []
