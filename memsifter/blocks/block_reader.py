"""Blocks of rows of a parquet file, read forward and a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...system.errors import MemAgentError

_THREADS = False
"""Arrow's pool of threads does not survive a fork."""


class NoTable(MemAgentError):
    """A file that is no parquet table, or a damaged one; the message names it."""


def open_table(path: Path) -> pq.ParquetFile:
    """Raises NoTable."""
    with _reading(path):
        return pq.ParquetFile(path)


def read_table(path: Path, columns: Sequence[str] | None = None, group: int | None = None) -> pa.Table:
    """All of a file, or these columns, or a row group of it. Raises NoTable."""
    names = None if columns is None else list(columns)
    with _reading(path), pq.ParquetFile(path) as file:
        if group is None:
            return file.read(names, use_threads=_THREADS)
        return file.read_row_group(group, names, use_threads=_THREADS)


def read_rows(path: Path, columns: Sequence[str], at_once: int) -> Iterator[list[dict[str, Any]]]:
    """Rows, ``at_once`` of them in memory, of those of ``columns`` that the file has. Raises NoTable."""
    with _reading(path), pq.ParquetFile(path) as file:
        held = [name for name in columns if name in file.schema_arrow.names]
        yield from (batch.to_pylist() for batch in file.iter_batches(at_once, columns=held, use_threads=_THREADS))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Names the file in what reading raises."""
    try:
        yield
    except FileNotFoundError:
        raise NoTable(f"{path}: no such file") from None
    except (OSError, pa.ArrowException) as error:
        raise NoTable(f"{path}: no parquet file, or a damaged one ({' '.join(str(error).split())[:120]})") from None


class BlockReader:
    """Block n has the rows from ``n * block`` on, ``block`` of them or what the first ``rows`` rows leave.

    Ascending numbers cost one pass over the file; a smaller number begins again.
    """

    def __init__(self, path: Path, block: int, rows: int) -> None:
        self._path, self._block, self._rows = path, block, rows
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.Table | None = None
        self._at = 0
        """The row of the file that ``_rest`` and then ``_batches`` go on with."""

    def rows(self, number: int) -> list[dict[str, Any]]:
        return self.table(number).to_pylist()

    def table(self, number: int) -> pa.Table:
        first = number * self._block
        count = min(self._block, self._rows - first)
        assert 0 <= first and count > 0, f"no block {number}"
        with _reading(self._path):
            if self._rest is None or self._at > first:
                file = pq.ParquetFile(self._path)
                self._batches = file.iter_batches(min(self._block, 16), use_threads=_THREADS)
                self._rest, self._at = file.schema_arrow.empty_table(), 0
            self._take(first - self._at)
            return self._take(count)

    def _take(self, count: int) -> pa.Table:
        """The next ``count`` rows."""
        assert self._rest is not None
        taken = [self._rest]
        have = len(self._rest)
        while have < count:
            taken.append(pa.Table.from_batches([next(self._batches)]))
            have += len(taken[-1])
        self._rest = taken[-1].slice(len(taken[-1]) - (have - count))
        self._at += count
        return pa.concat_tables(taken).slice(0, count)
