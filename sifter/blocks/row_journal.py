"""Results of single rows of a block, kept the moment they are there: a kill loses no answer that was paid for.

One line of JSON each, the row's key and its result, appended whole or not at all; a line that a kill has cut, or that
is no result, is as if it had never been written.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from ...system import bounded_json
from ...system.atomic_file import append_whole, appending


class RowJournal:
    """``done`` by position in the block, whose rows have these ``keys``. Threads of one process may share it."""

    def __init__(self, path: Path, keys: Sequence[str], fits: Callable[[dict[str, Any]], bool] = bool) -> None:
        """``fits``: what a line has to be, else it is as if it had never been written."""
        self._path, self._keys = path, keys
        self._lock = threading.Lock()
        self._file: io.FileIO | None = None
        kept = dict(read_journal(path))
        self.done: dict[int, dict[str, Any]] = {
            at: kept[key] for at, key in enumerate(keys) if key in kept and fits(kept[key])
        }

    def keep(self, position: int, result: dict[str, Any]) -> None:
        """``result`` of the row at ``position`` is on disk when this returns. It is JSON: lists come back as lists."""
        line = orjson.dumps([self._keys[position], result], option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        with self._lock:
            if self._file is None:
                self._file = _opened(self._path)
            append_whole(self._file, line)
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
        try:
            key, result = bounded_json.loads(line)
        except (TypeError, ValueError):
            continue
        if isinstance(key, str) and isinstance(result, dict):
            yield key, result


def _opened(path: Path) -> io.FileIO:
    """At the beginning of a line."""
    file = appending(path)
    try:
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            append_whole(file, b"\n")
    except BaseException:
        file.close()
        raise
    return file
