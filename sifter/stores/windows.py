"""A text longer than an embedding model reads, as the mean of its windows.

A text of 1,100 tokens, a model that reads 512, two of them for its own marks, and 4 windows at most::

    tokens 0-509, 510-1019, 1020-1099 -> three vectors -> their mean, brought back to length 1

One window is the published way: what follows it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from ...rewards.intrinsic.codes import Vectors
from ...rewards.intrinsic.encoder import Encoder
from ...system.tokenizer_panics import panics_told

_MARKS = 2


class WindowEncoder:
    """``encoder`` on at most ``most`` windows of ``length`` tokens of a text."""

    def __init__(self, encoder: Encoder, tokenizer: Tokenizer, length: int, most: int) -> None:
        assert length > _MARKS and most > 1, (length, most)
        self._encoder, self._tokenizer, self._size, self._most = encoder, tokenizer, length - _MARKS, most
        self.name = encoder.name

    @property
    def fingerprint(self) -> str:
        return f"{self._encoder.fingerprint}-{self._most}x{self._size}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        pieces = [self._pieces(text) for text in texts]
        vectors = self._encoder.encode([piece for some in pieces for piece in some])
        starts = np.cumsum([0, *map(len, pieces)])[:-1]
        sums = np.add.reduceat(vectors, starts, axis=0) if len(pieces) else vectors
        return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)

    def _pieces(self, text: str) -> list[str]:
        with panics_told(f"{self.name}: its"):
            spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        cuts = [spans[first][0] for first in range(self._size, len(spans), self._size)][: self._most]
        ends = [*cuts, len(text)][: self._most]
        return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
