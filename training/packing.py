"""Which rank trains which rows, and in which micro-batches, where a prefix that rows share costs its tokens once.

Sorted rows form tries; a trie that is too much for a micro-batch, or for one of the ranks, is cut at its shallowest
branch, whose prefix then stands in both pieces, until every piece fits. Whole pieces are dealt out. Invariants:

* every row appears exactly once over all ranks and micro-batches;
* a piece and a micro-batch hold at most ``max_tokens`` tokens, shared ones counted once, unless it is one longer row;
* ranks differ by at most the largest piece, and none is empty while there are pieces enough;
* the same input gives the same split on every process, so ranks agree without talking.

Rows ``1 2 3``, ``1 2 4``, ``1 2 5 6 7`` and ``8 9`` on two ranks: 9 tokens in all, so a rank should have 5. ``8 9`` is
cut off; the trie of the others has 7 tokens, 5 beside the prefix ``1 2`` that a cut would repeat, so it stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from .trie import sorted_by_prefix


@dataclass(frozen=True, slots=True)
class Piece:
    rows: tuple[int, ...]
    tokens: int
    """Of the trie of these rows."""


def rank_micro_batches(
    rows: Sequence[Sequence[int]], ranks: int, max_tokens: int, share: bool = True
) -> list[list[list[int]]]:
    """For each rank its micro-batches, as indices into ``rows`` (tokens); without ``share`` rows are pieces."""
    assert ranks >= 1 and max_tokens >= 1, (ranks, max_tokens)
    if share:
        pieces = cut_tries(rows, ranks, max_tokens)
    else:
        pieces = [Piece((index,), len(row)) for index, row in enumerate(rows)]
    return [first_fit(mine, max_tokens) for mine in split_pieces(pieces, ranks)]


def cut_tries(rows: Sequence[Sequence[int]], ranks: int, max_tokens: int) -> list[Piece]:
    """The rows in pieces of at most ``max_tokens``, of which at most a rank's share is not common to all rows of the
    piece; single rows excepted."""
    order, shared = sorted_by_prefix(rows)
    added = [len(rows[index]) - common for index, common in zip(order, shared, strict=True)]
    fair = -(-sum(added) // ranks)
    backwards = shared[::-1]
    pieces = []
    spans = [(0, len(order))] if order else []
    while spans:
        first, stop = spans.pop()
        tokens = shared[first] + sum(added[first:stop])
        common = min(shared[first + 1 : stop], default=tokens)
        if stop - first == 1 or (tokens <= max_tokens and tokens - common <= fair and common > 0):
            pieces.append(Piece(tuple(order[first:stop]), tokens))
        else:
            middle = _nearest(shared, backwards, common, first, stop)
            spans += [(middle, stop), (first, middle)]
    return pieces


def _nearest(shared: Sequence[int], backwards: Sequence[int], least: int, first: int, stop: int) -> int:
    """Where a span of sorted rows is cut: where neighbours share ``least``, next to its middle."""
    middle, last = (first + stop) // 2, len(shared) - 1
    places = []
    # index, and not a loop: each of the thousand rows of a comb is cut off by itself.
    with suppress(ValueError):
        places.append(last - backwards.index(least, last - middle, last - first))
    with suppress(ValueError):
        places.append(shared.index(least, middle + 1, stop))
    return min(places, key=lambda i: abs(2 * i - first - stop))


def trie_tokens(rows: Sequence[Sequence[int]]) -> int:
    """Tokens of the rows' tries, uncut."""
    order, shared = sorted_by_prefix(rows)
    return sum(len(rows[index]) - common for index, common in zip(order, shared, strict=True))


def split_pieces(pieces: Sequence[Piece], ranks: int) -> list[list[Piece]]:
    """Largest piece first, onto the rank with the fewest tokens so far."""
    shares: list[list[Piece]] = [[] for _ in range(ranks)]
    totals = [0] * ranks
    for piece in largest_first(pieces):
        lightest = totals.index(min(totals))
        shares[lightest].append(piece)
        totals[lightest] += piece.tokens
    return shares


def first_fit(pieces: Sequence[Piece], max_tokens: int) -> list[list[int]]:
    """Micro-batches of row indices: largest piece first, each into the first batch that it fits into."""
    batches: list[list[int]] = []
    totals: list[int] = []
    for piece in largest_first(pieces):
        place = next((b for b, total in enumerate(totals) if total + piece.tokens <= max_tokens), None)
        if place is None:
            place = len(batches)
            batches.append([])
            totals.append(0)
        batches[place] += piece.rows
        totals[place] += piece.tokens
    return batches


def largest_first(pieces: Sequence[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: (-piece.tokens, piece.rows))
