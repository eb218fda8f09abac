"""Vectors and token counts of texts, each computed once, whatever rows share the text and whichever run asked first.

::

    STORE/locomo/all-MiniLM-L6-v2-3f2a9c10/values.sqlite     vectors of one model, float32, of length 1
    STORE/locomo/tokens-9b1d77e2/values.sqlite               token counts by one tokenizer, uint32

A value is the bytes of an array, by 16 bytes of SHA-256 of its text. Another model has another folder, by its name and
the fingerprint of its weights and of how much of a text it reads, so two models can share a STORE and are never mixed.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from ..checkpoints.hf_model import local_folder
from ..rewards.intrinsic.encoder import Encoder
from ..sessions.records import Session
from ..sessions.wording import render_session
from ..system.errors import ConfigError, MemAgentError

_KEYS_AT_ONCE = 500
"""Of a query: old versions of sqlite take 999 at most."""
_TOKENIZER = "tokenizer.json"


class StoreRefused(MemAgentError):
    """A store that cannot be read or written; the message says which, and the remedy."""


def text_key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class Store:
    """Arrays by text in one sqlite file; processes and threads may share it. Raises StoreRefused."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self.folder, self._dtype = folder, np.dtype(dtype)
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(folder / "values.sqlite", timeout=60, check_same_thread=False)
            with self._base:
                self._base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) "
                                   "WITHOUT ROWID")
        except (OSError, sqlite3.Error) as error:
            raise StoreRefused(f"{folder}: cannot be used ({error}); delete it, or name another folder") from None

    def find(self, texts: Iterable[str]) -> dict[str, npt.NDArray[Any]]:
        """The values of those ``texts`` that have one, in their order."""
        names = {text_key(text): text for text in texts}
        found: dict[str, npt.NDArray[Any]] = {}
        every = list(names)
        with self._lock:
            for first in range(0, len(every), _KEYS_AT_ONCE):
                keys = every[first : first + _KEYS_AT_ONCE]
                query = f"SELECT key, value FROM vectors WHERE key IN ({','.join('?' * len(keys))})"
                for key, value in self._base.execute(query, keys):
                    found[names[key]] = np.frombuffer(value, self._dtype)
        return {text: found[text] for text in names.values() if text in found}

    def missing(self, texts: Iterable[str]) -> list[str]:
        """Those of ``texts`` that have no value, each once."""
        once = dict.fromkeys(texts)
        found = self.find(once)
        return [text for text in once if text not in found]

    def add(self, texts: Sequence[str], values: npt.NDArray[Any]) -> None:
        """[texts, width]; they are on disk when this returns, and what is there already stays."""
        rows = [(text_key(text), value.tobytes())
                for text, value in zip(texts, values.astype(self._dtype), strict=True)]
        try:
            with self._lock, self._base:
                self._base.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise StoreRefused(f"{self.folder}: cannot be written ({error}); make room, or name another") from None

    def close(self) -> None:
        self._base.close()


class VectorStore(Store):
    """The vectors of one model."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        name = encoder.name.replace("/", "-")
        known = encoder.fingerprint if encoder.fingerprint.startswith(name) else f"{name}-{encoder.fingerprint}"
        super().__init__(folder / known, "float32")
        self._encoder = encoder
        self.fingerprint = encoder.fingerprint

    def embed(self, texts: Iterable[str]) -> None:
        """Embed what is missing."""
        if missing := self.missing(texts):
            self.add(missing, self._encoder.encode(missing))

    def vectors(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """[texts, dims], of length 1; what is missing is embedded."""
        self.embed(texts)
        found = self.find(texts)
        return np.stack([found[text] for text in texts])


class TokenCounter(Store):
    """Tokens of rendered sessions by one tokenizer."""

    def __init__(self, folder: Path, tokenizer: str) -> None:
        """``tokenizer``: a model's folder or id, or a tokenizer.json."""
        self._file = _tokenizer_file(tokenizer)
        self.fingerprint = hashlib.sha256(self._file.read_bytes()).hexdigest()[:16]
        super().__init__(folder / f"tokens-{self.fingerprint}", "uint32")

    def sessions(self, sessions: Sequence[Session]) -> list[int]:
        """What each adds to a history of them all: the session rendered, and the newline behind it.

        Its number has as many digits as the history's last one, so that no number that it is shown under costs more.
        """
        number = 10 ** max(2, len(str(len(sessions) - 1))) - 1
        texts = [f"{render_session(session, number)}\n" for session in sessions]
        if missing := self.missing(texts):
            counts = [len(one.ids) for one in self._tokenizer.encode_batch_fast(missing, add_special_tokens=False)]
            self.add(missing, np.array(counts).reshape(-1, 1))
        found = self.find(texts)
        return [int(found[text][0]) for text in texts]

    def count(self, text: str) -> int:
        """Of a text that is not kept."""
        return len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_file(str(self._file))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"{self._file}: cannot be read as a tokenizer ({error})") from None
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
