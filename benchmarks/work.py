"""How much arithmetic a training step is, from the rows alone: what a perfect trainer would have to do.

A product of a weight matrix and one token's vector costs two operations a weight, its backward twice that; the output
layer runs only where a reply token is predicted. Attention costs ``4 x width`` operations for each pair of a token and
one that it sees (scores, and the weighted sum of values), and twice that backward. Kaplan et al., arXiv 2001.08361,
table 1, with the number of pairs counted.

Two rows ``a b c d`` and ``a b x y`` are 8 tokens that see 20; as a tree, without the last token of a row, which
predicts nothing, they are ``a b c x``: 4 tokens that see 1 + 2 + 3 + 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..training.rows import TrainRow


@dataclass(frozen=True, slots=True)
class Work:
    tokens: int
    """That go through the layers."""
    pairs: int
    """Of a token and one that it sees, itself among them."""
    predicted: int
    """Reply tokens."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a model's size counts."""

    body: int
    """Weights of all layers' matrices."""
    output: int
    """Weights of the output layer."""
    layers: int
    width: int
    """Heads times their size."""

    def flops(self, work: Work, *, backward: bool) -> float:
        forward = 2 * (self.body * work.tokens + self.output * work.predicted)
        forward += 4 * self.layers * self.width * work.pairs
        return 3 * forward if backward else forward


def as_rows(rows: Sequence[TrainRow]) -> Work:
    lengths = [len(row.tokens) for row in rows]
    return Work(sum(lengths), sum(n * (n + 1) // 2 for n in lengths), sum(row.response_length for row in rows))


def as_trees(rows: Sequence[TrainRow]) -> Work:
    """Every prefix that rows share counted once: the least any way of sharing can do."""
    tokens = pairs = 0
    before: Sequence[int] = ()
    for row in sorted(row.tokens[:-1] for row in rows):
        known = _common(before, row)
        tokens += len(row) - known
        pairs += (len(row) * (len(row) + 1) - known * (known + 1)) // 2
        before = row
    return Work(tokens, pairs, sum(row.response_length for row in rows))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
