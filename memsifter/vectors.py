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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from ..checkpoints.hf_model import local_folder
from ..rewards.intrinsic.encoder import Encoder
from ..sessions.records import Session
from ..sessions.wording import render_session


class Store:
    """Arrays by text in one sqlite file; processes and threads may share it."""

    def __init__(self, folder: Path, dtype: str, compute: Callable[[list[str]], npt.NDArray[Any]]) -> None:
        """``compute`` gives the values of texts that have none yet, [texts, width]."""
        folder.mkdir(parents=True, exist_ok=True)
        self._dtype, self._compute = dtype, compute
        self._base = sqlite3.connect(folder / "values.sqlite", timeout=60, check_same_thread=False)
        with self._base:
            self._base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self.close = self._base.close

    def missing(self, texts: Iterable[str]) -> list[str]:
        """Those of ``texts`` that have no value, each once."""
        return [text for text in dict.fromkeys(texts) if self._value(text) is None]

    def add(self, texts: Sequence[str], values: npt.NDArray[Any]) -> None:
        """[texts, width]; they are on disk when this returns, and what is there already stays."""
        kept = (value.tobytes() for value in values.astype(self._dtype))
        rows = zip(map(text_key, texts), kept, strict=True)
        with self._base:
            self._base.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)

    def values(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """[texts, width]; what is missing is computed."""
        if missing := self.missing(texts):
            self.add(missing, self._compute(missing))
        return np.stack([np.frombuffer(self._value(text) or b"", self._dtype) for text in texts])

    def _value(self, text: str) -> bytes | None:
        found = self._base.execute("SELECT value FROM vectors WHERE key = ?", (text_key(text),)).fetchone()
        return found[0] if found else None


class VectorStore(Store):
    """The vectors of one model."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        name = encoder.name.replace("/", "-")
        self.fingerprint = encoder.fingerprint
        known = self.fingerprint if self.fingerprint.startswith(name) else f"{name}-{self.fingerprint}"
        super().__init__(folder / known, "float32", encoder.encode)


class TokenCounter(Store):
    """Tokens of rendered sessions by one tokenizer."""

    def __init__(self, folder: Path, tokenizer: str) -> None:
        """``tokenizer``: a model's folder or id. Raises ConfigError."""
        content = (local_folder(tokenizer, "--tokenizer", weights=False) / "tokenizer.json").read_bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()[:16]
        self._tokenizer = Tokenizer.from_buffer(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        super().__init__(folder / f"tokens-{self.fingerprint}", "uint32", self._counts)

    def sessions(self, sessions: Sequence[Session]) -> list[int]:
        """What each adds to a history of them all: the session rendered, and the newline behind it.

        Its number has as many digits as the history's last one, so that no number that it is shown under costs more.
        """
        number = 10 ** max(2, len(str(len(sessions) - 1))) - 1
        texts = [f"{render_session(session, number)}\n" for session in sessions]
        return list(map(int, self.values(texts)[:, 0]))

    def count(self, text: str) -> int:
        """Of a text that is not kept."""
        return int(self._counts([text])[0, 0])

    def _counts(self, texts: list[str]) -> npt.NDArray[Any]:
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return np.array([[len(text.ids)] for text in encoded])


def text_key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]
