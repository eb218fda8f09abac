"""Texts to vectors of length 1: by a sentence-transformers model, or by hashed letters where none can be had.

Invariant: a text's vector depends on that text alone, to the last bit. A model that is shown several texts at once
rounds each in a way that depends on the others (1e-7, by padding and by how a product is cut up), and then a resumed
run would earn other rewards than an unbroken one. So texts of a batch go through the model one after another. On a CPU
that costs little or saves some: nothing is padded (docs/papers/memory_r.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...system.errors import ConfigError, MemAgentError, reason_of
from ...system.model_fit import check_ids, positions_of
from ...system.tokenizer_panics import panics_told
from ...system.whole_text import whole
from .codes import Vectors
from .model_folder import check_model_folder

WIDEST = 8192
"""Numbers of a vector, with what no embedding model comes near: the rotation of the codes has the square of it."""
_DIMS = 384
_LETTERS = (1, 4)


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

    It reads the first ``length`` tokens of a text, or as many as it was made for (256 of all-MiniLM-L6-v2); what
    follows does not count. With ``batch`` above 1 the invariant is given up for speed where texts are many, or
    there is a GPU: a vector then depends on its companions in the last bits.
    """

    def __init__(
        self, name: str, folder: Path, *, batch: int = 1, length: int | None = None, device: str | None = "cpu",
        variable: str = "MEM_IR_MODEL",
    ) -> None:
        """``device`` None takes a GPU where there is one; ``variable`` is what an error names."""
        self.name, self._folder, self._variable = name, folder, variable
        self._batch, self._length, self._device = batch, length, device

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Raises ConfigError, TokenizerFailed."""
        model = self._model
        try:
            with panics_told(f"{self._variable}={self.name!r}: its"):
                vectors = model.encode(
                    list(map(whole, texts)), batch_size=self._batch, normalize_embeddings=True,
                    show_progress_bar=False,
                )
        except MemAgentError:
            raise
        except Exception as error:  # what a model of somebody else ends with is known to nobody
            raise ConfigError(f"{self._variable}={self.name!r}: reads no such text: {reason_of(error)}") from error
        vectors = np.asarray(vectors, np.float32)
        if reason := _unusable(vectors):
            raise ConfigError(f"{self._variable}={self.name!r}: {reason}; name another model")
        return vectors

    @cached_property
    def fingerprint(self) -> str:
        """Of all its files that say how it reads: weights, vocabulary, settings."""
        digest = hashlib.sha256()
        kinds = {".json", ".txt", ".safetensors", ".bin", ".model"}
        for file in sorted(f for f in self._folder.rglob("*") if f.suffix in kinds and f.is_file()):
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()[:16] + (f"-{self._length}" if self._length is not None else "")

    @cached_property
    def _model(self) -> Any:
        check_model_folder(self._folder)
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging

            logging.disable_progress_bar()
            with _the_same_missing_weights():
                model = SentenceTransformer(str(self._folder), device=self._device, trust_remote_code=False,
                                            local_files_only=True, model_kwargs={"weights_only": True})
            _limit(model, self._length)
            return model
        except Exception as error:  # safetensors' own are no more than that
            where = f"{self._variable}={self.name!r}"
            raise ConfigError(f"{where}: cannot be loaded from {self._folder}: {reason_of(error)}") from error


def _limit(model: Any, length: int | None) -> None:
    """Each of its parts that counts tokens, be it a route of a Router, reads no more of them than it can tell apart.

    Others read all of a text: a StaticEmbedding is the mean of all its tokens.
    """
    from sentence_transformers.sentence_transformer.modules import Transformer, WordEmbeddings

    for part in model.modules():
        if isinstance(part, Transformer | WordEmbeddings):
            network = getattr(part, "auto_model", None)
            if network is not None:
                check_ids(part.tokenizer, network)
            read = length if length is not None else part.max_seq_length
            if read is not None:
                part.max_seq_length = min(read, positions_of(network) or read)


@contextmanager
def _the_same_missing_weights() -> Iterator[None]:
    """What a folder has no weights for is drawn by the library, which warns of it: here with one seed, so that a
    resumed run has the vectors of an unbroken one, and no draw of the caller's is another for it.
    """
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def _unusable(vectors: Vectors) -> str:
    """Why nobody can compare them; empty where all can."""
    if not len(vectors):
        return ""
    if not 0 < vectors.shape[-1] <= WIDEST:
        return f"its vectors have {vectors.shape[-1]:,} numbers, not 1 to {WIDEST:,}"
    return "" if np.isfinite(vectors).all() else "gives a text a vector with what is no number (NaN or infinity)"


class HashingEncoder:
    """Counts of 1 to 4 letters inside words, hashed into 384 coordinates: no model, and no meaning beyond spelling."""

    name = "hashing"
    fingerprint = f"hashing-{_DIMS}-{_LETTERS[0]}-{_LETTERS[1]}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        return self._counts.transform(map(whole, texts)).toarray().astype(np.float32)

    @cached_property
    def _counts(self) -> Any:
        from sklearn.feature_extraction.text import HashingVectorizer

        return HashingVectorizer(analyzer="char_wb", ngram_range=_LETTERS, n_features=_DIMS, lowercase=False)
