"""Arrays of one length by the text they belong to, in one sqlite file: append-only, for many processes, safe to kill.

Each value is the bytes of ``width`` numbers of ``dtype``, by 16 bytes of SHA-256 of the text. The table ``about`` says
whose values they are: the fingerprint of the model, the dtype and the width.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...system.errors import MemAgentError

_FILE = "values.sqlite"
_AT_ONCE = 500
Values = npt.NDArray[Any]


class StoreRefused(MemAgentError):
    """A store of something else, or one that cannot be read or written; the message says which, and the remedy."""


def key_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class RecordStore:
    """Values of ``dtype``, ``width`` each, of what has this ``fingerprint``. Raises StoreRefused."""

    def __init__(self, folder: Path, fingerprint: str, dtype: str, width: int | None = None) -> None:
        self.folder, self._dtype, self._width = folder, np.dtype(dtype), width
        self._about = fingerprint, self._dtype.name
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(folder / _FILE, timeout=60, check_same_thread=False)
            with self._base:
                self._base.execute("CREATE TABLE IF NOT EXISTS about (fingerprint TEXT, dtype TEXT, width INTEGER)")
                self._base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) "
                                   "WITHOUT ROWID")
            self._read_about()
        except (OSError, sqlite3.Error) as error:
            raise StoreRefused(f"{folder}: cannot be used ({error}); delete it, or name another folder") from None

    def __len__(self) -> int:
        with self._lock:
            return int(self._base.execute("SELECT count(*) FROM vectors").fetchone()[0])

    def find(self, keys: Sequence[bytes]) -> tuple[Values, npt.NDArray[np.bool_]]:
        """``[keys, width]`` and which of them are there; the values of others are 0."""
        held: dict[bytes, bytes] = {}
        once = list(dict.fromkeys(keys))
        with self._lock:
            for first in range(0, len(once), _AT_ONCE):
                some = once[first : first + _AT_ONCE]
                marks = ",".join("?" * len(some))
                held |= self._base.execute(f"SELECT key, value FROM vectors WHERE key IN ({marks})", some).fetchall()
            if held and self._width is None:
                self._read_about()
        found = np.zeros((len(keys), self._width or 0), self._dtype)
        there = np.array([key in held for key in keys], np.bool_)
        for number in np.flatnonzero(there):
            found[number] = np.frombuffer(held[keys[number]], self._dtype)
        return found, there

    def missing(self, keys: Sequence[bytes]) -> list[int]:
        """Which of ``keys``, by number, have no value."""
        return [int(number) for number in np.flatnonzero(~self.find(keys)[1])]

    def add(self, keys: Sequence[bytes], values: Values) -> None:
        """They are on disk when this returns; what is there already stays."""
        assert values.ndim == 2 and len(values) == len(keys), (values.shape, len(keys))
        if self._width not in (None, values.shape[1]):
            raise StoreRefused(f"{self.folder}: holds values of {self._width}, not of {values.shape[1]}; delete it")
        rows = [(key, value.tobytes()) for key, value in zip(keys, values.astype(self._dtype), strict=True)]
        try:
            with self._lock, self._base:
                if self._width is None:
                    self._width = values.shape[1]
                self._base.execute("INSERT INTO about SELECT ?, ?, ? WHERE NOT EXISTS (SELECT * FROM about)",
                                   (*self._about, self._width))
                self._base.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        except sqlite3.Error as error:
            raise StoreRefused(f"{self.folder / _FILE}: cannot be written ({error})") from None

    def _read_about(self) -> None:
        said = self._base.execute("SELECT fingerprint, dtype, width FROM about").fetchone()
        if said is None:
            return
        if said[:2] != self._about or self._width not in (None, said[2]):
            raise StoreRefused(f"{self.folder}: holds {said[2]} {said[1]} of {said[0]}, not {self._about[1]} of "
                               f"{self._about[0]}; name another folder, or delete this one")
        self._width = said[2]
