"""Results of single rows of a block, kept the moment they are there: a kill loses no answer that was paid for.

One line of JSON each, the row's key and its result, appended behind a line end: what a kill leaves of a line spoils no
other, and is skipped.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from ...system.files import append_whole


class RowJournal:
    """``done`` by position in the block, whose rows have these ``keys``. Threads of one process may share it."""

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self._path, self._keys = path, keys
        self._lock = threading.Lock()
        self._file: io.FileIO | None = None
        kept = dict(read_journal(path))
        self.done: dict[int, dict[str, Any]] = {at: kept[key] for at, key in enumerate(keys) if key in kept}

    def keep(self, position: int, result: dict[str, Any]) -> None:
        """``result`` of the row at ``position`` is on disk when this returns. It is JSON: lists come back as lists."""
        line = orjson.dumps([self._keys[position], result], option=orjson.OPT_SERIALIZE_NUMPY)
        with self._lock:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            append_whole(self._file, b"\n" + line)
            self.done[position] = orjson.loads(line)[1]

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> RowJournal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_journal(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Keys and results, as they were kept."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # none yet, or its block has just become a part
        return
    for line in content.splitlines():
        with suppress(orjson.JSONDecodeError):  # empty, or cut by a kill
            yield tuple(orjson.loads(line))
