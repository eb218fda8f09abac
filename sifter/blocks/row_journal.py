"""Results of single rows of a block, kept the moment they are there: a kill loses no answer that was paid for.

One line of JSON each, appended whole; a line that a kill has cut, or that is no result, is as if it had never been
written.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from ...system.atomic_file import full_disk_named


class RowJournal:
    """``done`` by position in the block. Threads of one process may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file: int | None = None
        self.done: dict[int, dict[str, Any]] = _read(path)

    def keep(self, position: int, result: dict[str, Any]) -> None:
        """``result`` of the row at ``position`` is on disk when this returns. It is JSON: lists come back as lists."""
        line = orjson.dumps([position, result], option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        with self._lock, full_disk_named(self._path):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                _end_torn_line(self._path, self._file)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest):]
            self.done[position] = orjson.loads(line)[1]

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> RowJournal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read(path: Path) -> dict[int, dict[str, Any]]:
    done: dict[int, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                position, result = orjson.loads(line)
            except (orjson.JSONDecodeError, TypeError, ValueError):
                continue
            if isinstance(position, int) and isinstance(result, dict):
                done[position] = result
    return done


def _end_torn_line(path: Path, file: int) -> None:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.write(file, b"\n")
