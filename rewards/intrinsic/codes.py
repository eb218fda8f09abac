"""Vectors of length 1 in a few bits for each coordinate: what a memory of a million of them takes.

A fixed random rotation spreads every vector evenly over its coordinates, whatever model it comes from; they are then
as if drawn from a normal distribution of deviation 1/sqrt(dims). So one range, set here and never trained, fits all,
and a vector's code depends on that vector alone. Lengths, distances and angles are those before the rotation; who
compares rotates the other side as well and never back.

Of 4 bits there are 16 equal steps over +-2.7 deviations (the best for a normal distribution is 2.68: Max, 1960): 192
bytes for 384 dims. What that costs was measured on MiniLM's vectors, see docs/papers/memory_r_a.md.
"""

from __future__ import annotations

from functools import lru_cache

import faiss
import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
CodeRows = NDArray[np.uint8]

_KINDS = {4: faiss.ScalarQuantizer.QT_4bit_uniform, 8: faiss.ScalarQuantizer.QT_8bit_uniform,
          16: faiss.ScalarQuantizer.QT_fp16}
_DEVIATIONS = {4: 2.7, 8: 5.0}
"""Half of the range."""


@lru_cache(maxsize=4)
def _rotation(dims: int) -> Vectors:
    orthogonal, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((dims, dims)))
    return orthogonal.astype(np.float32)


def rotated(vectors: Vectors) -> Vectors:
    """[n, dims] in the space of the codes. Each row by itself: a product of many rows may round them differently."""
    rotation = _rotation(vectors.shape[1])
    return np.stack([row @ rotation for row in vectors]) if len(vectors) else vectors


def set_range(quantiser: faiss.ScalarQuantizer, bits: int) -> None:
    """The steps of a uniform quantiser; faiss divides its range into one step less than there are codes."""
    if bits in _DEVIATIONS:
        half, codes = _DEVIATIONS[bits] / quantiser.d**0.5, 2**bits
        faiss.copy_array_to_vector(np.array([-half, 2 * half * (codes - 1) / codes], np.float32), quantiser.trained)


class Codes:
    """To codes and back, for ``dims`` coordinates of 4, 8 or 16 bits; all vectors rotated."""

    def __init__(self, dims: int, bits: int) -> None:
        self.dims = dims
        self._quantiser = faiss.ScalarQuantizer(dims, _KINDS[bits])
        set_range(self._quantiser, bits)
        self.size: int = self._quantiser.code_size
        """Bytes of a vector."""

    def encode(self, vectors: Vectors) -> CodeRows:
        """[n, dims] to [n, size]."""
        return self._quantiser.compute_codes(np.ascontiguousarray(vectors, np.float32))

    def decode(self, codes: CodeRows) -> Vectors:
        """[n, size] to [n, dims]."""
        return self._quantiser.decode(np.ascontiguousarray(codes))
