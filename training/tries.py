"""Rows that share prefixes: as tries for a forward pass, and split over ranks and micro-batches.

**A trie.** A prefix that rows share is one run of tokens, encoded once. Tokens are in depth-first order, so that one
number per token says who sees it: token k is visible to token q if and only if ``k <= q < end[k]``, where ``end[k]``
is the first token after k's subtree. A row's last token predicts nothing and is left out; equal rows are one path,
and a row that is a prefix of another ends inside that one's path.

Rows ``1 2 3 9``, ``1 2 4 9`` and ``7 8 9``, each with a response of its last two tokens::

    index      0  1  2  3  4  5
    tokens     1  2  3  4  7  8
    positions  0  1  2  2  0  1
    end        4  4  3  4  6  6
    predicted  (1 -> 3) (2 -> 9) (1 -> 4) (3 -> 9) (4 -> 8) (5 -> 9)

The predictions are the rows' response tokens, each once: a second row ``1 2 3 9`` would add none.

**The split.** A trie that is too much for a micro-batch, or for one of the ranks, is cut at its shallowest branch,
whose prefix then stands in both pieces, until every piece fits. Whole pieces are dealt out. Invariants:

* every row appears exactly once over all ranks and micro-batches;
* a piece and a micro-batch hold at most ``max_tokens`` tokens, shared ones counted once, unless it is one longer row;
* ranks differ by at most the largest piece, and none is empty while there are pieces enough;
* the same input gives the same split on every process, so ranks agree without talking.

Rows ``1 2 3``, ``1 2 4``, ``1 2 5 6 7`` and ``8 9`` on two ranks: 9 tokens in all, so a rank should have 5. ``8 9`` is
cut off; the trie of the others has 7 tokens, 5 beside the prefix ``1 2`` that a cut would repeat, so it stays whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .rows import TrainRow

# --- a trie ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trie:
    tokens: list[int]
    positions: list[int]
    """Of each token in its rows."""
    end: list[int]
    predicting: list[int]
    """Where each different prediction is made: an index into ``tokens``."""
    targets: list[int]
    """What is predicted there."""
    places: list[int]
    """For every response token, row after row as they were given: its index into the two lists above."""


def build_trie(rows: Sequence[TrainRow], share: bool = True) -> Trie:
    """All rows of a pack; without ``share`` each keeps a path of its own."""
    inputs = [row.inputs for row in rows]
    order, shared = sorted_by_prefix(inputs) if share else (list(range(len(rows))), [0] * len(rows))
    tokens, positions, end, path = list[int](), list[int](), list[int](), list[int]()
    paths: list[list[int]] = [[]] * len(rows)
    for index, common in zip(order, shared, strict=True):
        for k in path[common:]:
            end[k] = len(tokens)
        own = inputs[index][common:]
        path = path[:common] + list(range(len(tokens), len(tokens) + len(own)))
        paths[index] = path
        tokens += own
        positions += range(common, common + len(own))
        end += [0] * len(own)
    for k in path:
        end[k] = len(tokens)
    number: dict[tuple[int, int], int] = {}  # each different (predicting token, target) -> its place
    places = []
    for row, path in zip(rows, paths, strict=True):
        predicting = path[len(path) - row.response_length :]
        places += [number.setdefault(pair, len(number)) for pair in zip(predicting, row.response, strict=True)]
    return Trie(tokens, positions, end, [at for at, _ in number], [target for _, target in number], places)


def sorted_by_prefix(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """``(order, shared)``: rows that share most stand side by side; row ``order[i]`` shares its first ``shared[i]``
    tokens with the one before it, and no more with any earlier one."""
    # As numbers of equal width, high byte first, rows have the order of the lists, and compare many times faster.
    written = [np.array(row, ">u4") for row in rows]
    order = sorted(range(len(rows)), key=lambda i: written[i].tobytes())
    return order, [0, *(common_prefix(written[a], written[b]) for a, b in pairwise(order))][: len(rows)]


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many first tokens are equal."""
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


def trie_tokens(rows: Sequence[Sequence[int]]) -> int:
    """Tokens of the rows' tries, uncut."""
    order, shared = sorted_by_prefix(rows)
    return sum(len(rows[index]) - common for index, common in zip(order, shared, strict=True))


# --- the split ------------------------------------------------------------------------------------------------------


Piece = tuple[int, list[int]]
"""Tokens of a trie, and its rows."""


def rank_micro_batches(
    rows: Sequence[Sequence[int]], ranks: int, max_tokens: int, share: bool = True
) -> list[list[list[int]]]:
    """For each rank its micro-batches, as indices into ``rows`` (tokens); without ``share`` rows are pieces.

    Largest piece first, onto the rank with the fewest tokens so far.
    """
    pieces = cut_tries(rows, ranks, max_tokens) if share else [(len(row), [i]) for i, row in enumerate(rows)]
    pieces.sort(key=lambda piece: (-piece[0], piece[1]))
    totals, shares = [0] * ranks, [list[Piece]() for _ in range(ranks)]
    for tokens, piece in pieces:
        lightest = totals.index(min(totals))
        totals[lightest] += tokens
        shares[lightest].append((tokens, piece))
    return [first_fit(mine, max_tokens) for mine in shares]


def cut_tries(rows: Sequence[Sequence[int]], ranks: int, max_tokens: int) -> list[Piece]:
    """The rows in pieces of at most ``max_tokens``, of which at most a rank's share is not common to all rows of the
    piece; single rows excepted."""
    order, shared = sorted_by_prefix(rows)
    added = [len(rows[index]) - common for index, common in zip(order, shared, strict=True)]
    fair = -(-sum(added) // ranks)
    pieces = []
    spans = [(0, len(order))] if order else []
    while spans:
        first, stop = spans.pop()
        tokens = shared[first] + sum(added[first:stop])
        common = min(shared[first + 1 : stop], default=tokens)
        if stop - first == 1 or (tokens <= max_tokens and tokens - common <= fair and common > 0):
            pieces.append((tokens, order[first:stop]))
        else:
            # Where neighbours share least, next to the middle.
            cuts = (i for i in range(first + 1, stop) if shared[i] == common)
            middle = min(cuts, key=lambda i: abs(2 * i - first - stop))
            spans += [(middle, stop), (first, middle)]
    return pieces


def first_fit(pieces: Sequence[Piece], max_tokens: int) -> list[list[int]]:
    """Micro-batches of row indices: each piece in its turn into the first batch that it fits into."""
    batches: list[list[int]] = []
    totals: list[int] = []
    for tokens, rows in pieces:
        place = next((b for b, total in enumerate(totals) if total + tokens <= max_tokens), len(batches))
        if place == len(batches):
            batches.append([])
            totals.append(0)
        batches[place] += rows
        totals[place] += tokens
    return batches
