"""best@k and pass@k: what the best of several answers to a question is worth, and whether any of k is right."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb


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
    assert 1 <= k <= answers and 0 <= right <= answers, (k, answers, right)
    return 1 - comb(answers - right, k) / comb(answers, k)


def pass_sizes(answers: int) -> list[int]:
    """The k of which pass@k is told where a question has so many answers: powers of two, and all of them."""
    powers = [2**i for i in range(answers.bit_length()) if 2**i <= answers]
    return list(dict.fromkeys([*powers, answers])) if answers else []
