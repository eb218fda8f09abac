"""What a text is about, as one vector of length 1, by a sentence-transformers model.

A text longer than the model's window is read window by window; its vector is the mean over all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..system.errors import ConfigError, reason_of

_MARKS = 2
"""Tokens that a model puts around a text."""
_WINDOW = 512
"""Tokens of a window where the model names no limit."""


class Embedding:
    """The model in a folder; safe to use from several threads.

    Raises:
        ConfigError: it cannot be loaded.
    """

    def __init__(self, folder: Path, *, trust_remote_code: bool = False) -> None:
        from sentence_transformers import SentenceTransformer

        try:
            self._model = SentenceTransformer(
                str(folder), device="cpu", trust_remote_code=trust_remote_code, local_files_only=True)
        except Exception as error:  # a damaged folder ends in errors of several libraries
            raise ConfigError(f"{folder}: no embedding model can be loaded from it: {reason_of(error)}") from error
        self._window = min(self._model.max_seq_length or _WINDOW, _WINDOW) - _MARKS
        self._dims: int = self._model.get_sentence_embedding_dimension() or 0
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, [texts, dims]; an empty text's is 0."""
        with self._lock:
            windows = [self._windows(text) for text in texts]
            vectors = self._model.encode([one for some in windows for one in some], show_progress_bar=False)
        sums = np.zeros((len(texts), self._dims), np.float32)
        if len(vectors):
            np.add.at(sums, np.repeat(np.arange(len(texts)), list(map(len, windows))), vectors)
        return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)

    def _windows(self, text: str) -> list[str]:
        encoded = self._model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        spans = encoded["offset_mapping"]
        parts = [spans[start : start + self._window] for start in range(0, len(spans), self._window)]
        return [text[part[0][0] : part[-1][1]] for part in parts]
