"""best@k: what the best of several answers to a question is worth."""

from __future__ import annotations

from collections.abc import Sequence


def expected_best(values: Sequence[float]) -> float:
    """The mean of the best of k draws, with replacement, from a question's k answers.

    What verl's ``process_validation_metrics`` estimates with 1,000 draws, as an expectation: the i-th smallest is the
    best with probability (i/k)^k - ((i-1)/k)^k. Example: 1 of 4 answers is right: 1 - (3/4)^4 = 0.684.
    """
    k = len(values)
    return sum(value * ((i / k) ** k - ((i - 1) / k) ** k) for i, value in enumerate(sorted(values), 1))
