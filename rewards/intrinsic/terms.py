"""The two raw terms of Memory-R+ (arXiv 2504.02273, section 3).

exploit   -|e - c|, c the mean of the retrieved successes' vectors: at most 0, the nearer the greater
explore   1 - the greatest cosine of e and a retrieved failure's vector: 0 for one that is there, 1 at a right angle

Of a response of several sentences each is the mean over them. Every vector is compared by itself, in the order in
which the stored ones are given, so that the same vectors give the same bits whoever shares the batch.

Example in two dimensions::

    successes (1, 0) (0, 1)     c = (0.5, 0.5)     e = (1, 0): exploit = -sqrt(0.5)
    failures  (1, 0) (0.6, 0.8)                    e = (0, 1): explore = 1 - 0.8
"""

from __future__ import annotations

import numpy as np

from .encoder import Vectors

_TINY = 1e-12


def centre(values: Vectors) -> Vectors:
    """Mean of [n, dims] over n >= 1."""
    return values.mean(axis=0, dtype=np.float64).astype(np.float32)


def exploit(pieces: Vectors, middle: Vectors) -> float:
    """Of the vectors of a response, [sentences, dims], and the mean of the successes, [dims]."""
    return -float(np.mean([np.linalg.norm(piece - middle) for piece in pieces]))


def lengths(values: Vectors) -> Vectors:
    return np.maximum(np.linalg.norm(values, axis=1), _TINY)


def explore(pieces: Vectors, values: Vectors, norms: Vectors) -> float:
    """Of the vectors of a response and those of failures, [n, dims], whose lengths are ``norms``."""
    nearest = [float(np.max((values @ piece) / norms)) / max(float(np.linalg.norm(piece)), _TINY) for piece in pieces]
    return float(np.mean([1.0 - cosine for cosine in nearest]))
