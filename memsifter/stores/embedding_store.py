"""Vectors and token counts of texts, each computed once, whatever rows share the text and whichever run asked first.

::

    STORE/locomo/all-MiniLM-L6-v2-3f2a9c10/     vectors of one model (``record_store.py``), float32, of length 1
    STORE/locomo/tokens-9b1d77e2/               token counts by one tokenizer

Another model has another folder, by its name and the fingerprint of its weights and of how much of a text it reads, so
two models can share a STORE and are never mixed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from ...checkpoints.hf_model import local_folder
from ...rewards.intrinsic.encoder import Encoder, make_encoder
from ...sessions.records import Session
from ...sessions.render import render_session
from ...system.errors import ConfigError
from .record_store import RecordStore, key_of

_AT_ONCE = 32
"""Texts that are embedded before they are written: what a kill costs at most."""
VARIABLE = "EMBEDDING_MODEL_NAME"
_TOKENIZER = "tokenizer.json"


def embedding_model(
    name: str, *, path: str = "", batch: int = 32, length: int = 512, device: str | None = None
) -> Encoder:
    """The model of this name, its weights at ``path`` where that is given. It reads ``length`` tokens of a text.

    Raises ConfigError.
    """
    return make_encoder(name, VARIABLE, path=path, batch=batch, length=length, device=device)


class EmbeddingStore:
    """The vectors of one model in a STORE/data set folder; several processes may share it."""

    def __init__(self, folder: Path, encoder: Encoder, at_once: int = _AT_ONCE) -> None:
        """``at_once``: a batch of the encoder."""
        name = encoder.name.replace("/", "-")
        fingerprint = encoder.fingerprint
        known = fingerprint if fingerprint.startswith(name) else f"{name}-{fingerprint}"
        self._encoder, self._at_once = encoder, at_once
        self._records = RecordStore(folder / known, fingerprint, "float32")
        self.embedded = 0
        """Texts that this object has embedded."""

    @property
    def fingerprint(self) -> str:
        return self._encoder.fingerprint

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Those of ``texts`` that have no vector, each once."""
        once = list(dict.fromkeys(texts))
        return [once[number] for number in self._records.missing([key_of(text) for text in once])]

    def embed(self, texts: Sequence[str]) -> None:
        """Embed what is missing; long and short texts go side by side with their like."""
        todo = sorted(self.missing(texts), key=len, reverse=True)
        for first in range(0, len(todo), self._at_once):
            batch = todo[first:first + self._at_once]
            self._records.add([key_of(text) for text in batch], self._encoder.encode(batch))
            self.embedded += len(batch)

    def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """[texts, dims], of length 1; what is missing is embedded."""
        self.embed(texts)
        found, there = self._records.find([key_of(text) for text in texts])
        assert there.all(), "a vector that was just written is gone"
        return found


class TokenCounter:
    """Tokens of rendered sessions by one tokenizer, kept beside the vectors."""

    def __init__(self, folder: Path, tokenizer: str) -> None:
        """``tokenizer``: a model's folder or id, or a tokenizer.json."""
        self._tokenizer = tokenizer
        self._file = _tokenizer_file(tokenizer)
        self.fingerprint = hashlib.sha256(self._file.read_bytes()).hexdigest()[:16]
        self._records = RecordStore(folder / f"tokens-{self.fingerprint}", self.fingerprint, "uint32", 1)
        self.counted = 0
        """Texts that this object has tokenised."""

    def sessions(self, sessions: Sequence[Session]) -> list[int]:
        """What each adds to a history of them all: the session rendered, and the newline behind it.

        Its number has as many digits as the history's last one, so that no number that it is shown under costs more.
        """
        digits = max(2, len(str(len(sessions) - 1)))
        number = 10**digits - 1
        return self.texts([f"{render_session(session, number)}\n" for session in sessions])

    def texts(self, texts: Sequence[str]) -> list[int]:
        keys = [key_of(text) for text in texts]
        found, there = self._records.find(keys)
        if not there.all():
            new = {texts[number]: keys[number] for number in np.flatnonzero(~there)}
            counts = [len(one.ids) for one in self._loaded.encode_batch(list(new), add_special_tokens=False)]
            self._records.add(list(new.values()), np.array(counts, np.uint32).reshape(-1, 1))
            self.counted += len(new)
            found, there = self._records.find(keys)
        return [int(count) for count in found[:, 0]]

    def count(self, text: str) -> int:
        """Of a text that is not kept."""
        return len(self._loaded.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    @cached_property
    def _loaded(self) -> Tokenizer:
        return _tokenizer(self._file)


def _tokenizer(file: Path) -> Tokenizer:
    """Raises ConfigError."""
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(f"{file}: cannot be read as a tokenizer ({error})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _tokenizer_file(name: str) -> Path:
    """Raises ConfigError."""
    if Path(name).is_file():
        return Path(name)
    folder = local_folder(name, "--tokenizer", weights=False)
    if not (folder / _TOKENIZER).is_file():
        raise ConfigError(f"--tokenizer {name!r}: {folder} has no tokenizer.json")
    return folder / _TOKENIZER
