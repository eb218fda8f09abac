"""Which rank trains which rows, and in which micro-batches.

Everything is row indices and token counts; there are no padding rows. Invariants:

* every row appears exactly once over all ranks and micro-batches;
* with at least as many rows as ranks, no rank is empty;
* a micro-batch holds at most ``max_tokens`` tokens, unless it is one single longer row;
* the same input gives the same split on every process, so ranks agree without talking.

``split_rows([5, 1, 4, 2], 2)`` gives ``[[0, 1], [2, 3]]``: 6 tokens each.
"""

from __future__ import annotations

from collections.abc import Sequence


def split_rows(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Row indices per rank, longest row first onto the rank with the fewest tokens so far."""
    assert ranks >= 1 and all(length >= 1 for length in lengths), (ranks, lengths)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    totals = [0] * ranks
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = totals.index(min(totals))
        shares[lightest].append(index)
        totals[lightest] += lengths[index]
    return [sorted(share) for share in shares]


def micro_batches(indices: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Pack the rows ``indices`` (into ``lengths``) first-fit, longest first; a row over ``max_tokens`` sits alone."""
    assert max_tokens >= 1, max_tokens
    batches: list[list[int]] = []
    totals: list[int] = []
    for index in sorted(indices, key=lambda i: (-lengths[i], i)):
        place = next((b for b, total in enumerate(totals) if total + lengths[index] <= max_tokens), None)
        if place is None:
            batches.append([index])
            totals.append(lengths[index])
        else:
            batches[place].append(index)
            totals[place] += lengths[index]
    return batches
