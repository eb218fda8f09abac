"""The rows of a pack as tries: a prefix that rows share is one run of tokens, encoded once.

Tokens are in depth-first order, so that one number per token says who sees it: token k is visible to token q if and
only if ``k <= q < end[k]``, where ``end[k]`` is the first token after k's subtree. A row's last token predicts nothing
and is left out; equal rows are one path, and a row that is a prefix of another ends inside that one's path.

Rows ``1 2 3 9``, ``1 2 4 9`` and ``7 8 9``, each with a response of its last two tokens::

    index      0  1  2  3  4  5
    tokens     1  2  3  4  7  8
    positions  0  1  2  2  0  1
    end        4  4  3  4  6  6
    predicted  (1 -> 3) (2 -> 9) (1 -> 4) (3 -> 9) (4 -> 8) (5 -> 9)

The predictions are the rows' response tokens, each once: a second row ``1 2 3 9`` would add none.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from .rows import TrainRow


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

    @property
    def deepest(self) -> int:
        """Tokens of the longest row."""
        return max(self.positions) + 1


def build_trie(rows: Sequence[TrainRow], share: bool = True) -> Trie:
    """All rows of a pack; without ``share`` each keeps a path of its own."""
    inputs = [row.inputs for row in rows]
    order, shared = sorted_by_prefix(inputs) if share else (list(range(len(rows))), [0] * len(rows))
    tokens: list[int] = []
    positions: list[int] = []
    end: list[int] = []
    paths: list[list[int]] = [[]] * len(rows)
    path: list[int] = []
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
    return Trie(tokens, positions, end, *_predictions(rows, paths))


def _predictions(
    rows: Sequence[TrainRow], paths: Sequence[Sequence[int]]
) -> tuple[list[int], list[int], list[int]]:
    number: dict[tuple[int, int], int] = {}
    places = []
    for row, path in zip(rows, paths, strict=True):
        at = path[len(path) - row.response_length :]
        places += [number.setdefault(pair, len(number)) for pair in zip(at, row.response, strict=True)]
    return [position for position, _ in number], [target for _, target in number], places


def sorted_by_prefix(rows: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """``(order, shared)``: rows that share most stand side by side; row ``order[i]`` shares its first ``shared[i]``
    tokens with the one before it, and no more with any earlier one."""
    # As numbers of equal width, high byte first, rows have the order of the lists, and compare many times faster.
    written = [_big_endian(row) for row in rows]
    order = sorted(range(len(rows)), key=written.__getitem__)
    before = [b"", *(written[i] for i in order[:-1])]
    return order, [common_prefix(a, written[i]) // _WIDTH for a, i in zip(before, order, strict=False)]


_WIDTH = array("I").itemsize


def _big_endian(row: Sequence[int]) -> bytes:
    numbers = array("I", row)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def common_prefix(a: bytes, b: bytes) -> int:
    """How many first bytes are equal."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:  # a[:low] == b[:low] and a[:high] != b[:high]
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
