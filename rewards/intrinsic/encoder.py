"""Texts to vectors of length 1: by a sentence-transformers model, or by hashed letters where none can be had."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...system.errors import ConfigError, reason_of

Vectors = NDArray[np.float32]
_DIMS = 384
_LETTERS = (1, 4)
_READ = {".json", ".txt", ".safetensors", ".bin", ".model"}
"""Endings of the files that say how a model reads: weights, vocabulary, settings."""


class Encoder(Protocol):
    """What turns texts into vectors."""

    name: str
    """As the user named it."""

    @property
    def fingerprint(self) -> str:
        """Equal for equal weights, wherever they lie."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """[texts, dims], each of length 1, all finite."""


class SentenceEncoder:
    """A sentence-transformers model in a folder, loaded when it is first needed.

    It reads the first ``length`` tokens of a text, or as many as it was made for (256 of all-MiniLM-L6-v2).
    """

    def __init__(
        self, name: str, folder: Path, *, batch: int = 32, length: int | None = None, device: str | None = "cpu",
        variable: str = "MEM_IR_MODEL", trust_remote_code: bool = False,
    ) -> None:
        """``device`` None takes a GPU where there is one; ``variable`` is what an error names."""
        self.name, self._folder, self._variable = name, folder, variable
        self._batch, self._length, self._device, self._trusted = batch, length, device, trust_remote_code

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Raises ConfigError: the model cannot be loaded, or gives NaN or infinity."""
        vectors = np.asarray(self._model.encode(
            list(texts), batch_size=self._batch, normalize_embeddings=True, show_progress_bar=False), np.float32)
        if not np.isfinite(vectors).all():
            raise ConfigError(f"{self._variable}={self.name!r}: gives a text a vector of NaN or infinity")
        return vectors

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for file in sorted(file for file in self._folder.rglob("*") if file.suffix in _READ and file.is_file()):
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()[:16] + (f"-{self._length}" if self._length is not None else "")

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(
                str(self._folder), device=self._device, trust_remote_code=self._trusted, local_files_only=True)
        except Exception as error:  # a damaged folder ends in errors of several libraries
            remedy = "; TRUST_REMOTE_CODE=1 runs a model's own code" if "trust_remote_code" in str(error) else ""
            raise ConfigError(f"{self._variable}={self.name!r}: cannot be loaded from {self._folder}: "
                              f"{reason_of(error)}{remedy}") from error
        if self._length is not None:
            model.max_seq_length = self._length
        return model


class HashingEncoder:
    """Counts of 1 to 4 letters inside words, hashed into 384 coordinates: no model, and no meaning beyond spelling."""

    name = "hashing"
    fingerprint = f"hashing-{_DIMS}-{_LETTERS[0]}-{_LETTERS[1]}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self._counts.transform(texts).toarray().astype(np.float32)

    @cached_property
    def _counts(self) -> Any:
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(analyzer="char_wb", ngram_range=_LETTERS, n_features=_DIMS, lowercase=False)
