"""Blocks of rows of a parquet file, read forward and a few at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...system.bounded_parquet import batches, buffer_size, check_file, check_group, row_counts
from ...system.errors import MemAgentError

_DAMAGE = (OSError, pa.ArrowException, ValueError, ArithmeticError, LookupError)
"""What reading a table raises: of names that are no text, and of values that Python cannot hold, such as a date of the
year 10,000 or a time in a zone that nobody knows, the last three."""


class NoTable(MemAgentError):
    """A file that is no parquet table, or a damaged one; the message names it."""


def open_table(path: Path) -> pq.ParquetFile:
    """Raises NoTable."""
    try:
        return pq.ParquetFile(path, buffer_size=buffer_size(path), pre_buffer=False, page_checksum_verification=True)
    except FileNotFoundError:
        raise NoTable(f"{path}: no such file") from None
    except _DAMAGE as error:
        raise NoTable(f"{path}: no parquet file ({' '.join(str(error).split())[:120]})") from None


def read_table(
    path: Path, columns: Sequence[str] | None = None, group: int | None = None, kinds: pa.Schema | None = None
) -> pa.Table:
    """All of a file, or these columns, or a row group of it. Raises NoTable, also where ``kinds`` are others."""
    file = open_table(path)
    names = None if columns is None else list(columns)
    with _told(path):
        if group is None:
            check_file(file.metadata, path, names)
        else:
            row_counts(file.metadata, path, [group])
            check_group(file.metadata, path, group, names)
        table = file.read(columns=names) if group is None else file.read_row_group(group, columns=names)
        return table if kinds is None else table.cast(kinds)


def read_rows(path: Path, columns: Sequence[str], at_once: int) -> Iterator[list[dict[str, Any]]]:
    """Rows, ``at_once`` of them in memory, of those of ``columns`` that the file has. Raises NoTable."""
    with open_table(path) as file:
        held = [name for name in columns if name in file.schema_arrow.names]
        found = batches(file, path, at_once, held)
        while True:
            with _told(path):
                rows = next((batch.to_pylist() for batch in found), None)
            if rows is None:
                return
            yield rows


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What reading raises, with the file's name: Arrow's errors have none."""
    try:
        yield
    except _DAMAGE as error:
        raise _damaged(path, " ".join(str(error).split())[:120]) from None


def _damaged(path: Path, reason: str) -> NoTable:
    return NoTable(f"{path}: is damaged ({reason}); delete it, and what wrote it makes it again")


class BlockReader:
    """Block n has the rows from ``n * block`` on, ``block`` of them or what the first ``rows`` rows leave.

    Ascending numbers cost one pass over the file, whose footer is parsed once. A smaller number begins again, in its
    row group.
    """

    def __init__(self, path: Path, block: int, rows: int) -> None:
        self._path, self._block, self._rows = path, block, rows
        self._starts = [0]
        """The first rows of the row groups of the file that is open, and the number of its rows."""
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.Table | None = None
        self._at: int | None = None
        """The row of the file that ``_rest`` and then ``_batches`` go on with."""

    def rows(self, number: int) -> list[dict[str, Any]]:
        table = self.table(number)
        with _told(self._path):
            return table.to_pylist()

    def table(self, number: int) -> pa.Table:
        first = number * self._block
        count = min(self._block, self._rows - first)
        assert 0 <= first and count > 0, f"no block {number}"
        if not self._comes_to(first):
            self._open(first)
        assert self._at is not None
        self._take(first - self._at)
        return self._take(count)

    def _comes_to(self, row: int) -> bool:
        """Whether what is open goes on before ``row``, and in the same row group."""
        return self._at is not None and self._starts[bisect_right(self._starts, row) - 1] <= self._at <= row

    def _open(self, row: int) -> None:
        """The file, from the row group on that has ``row``."""
        file = open_table(self._path)
        starts = [0, *accumulate(row_counts(file.metadata, self._path))]
        if row >= starts[-1]:
            raise _damaged(self._path, f"it says that it has a row {row}")
        group = bisect_right(starts, row) - 1
        self._batches = batches(file, self._path, min(self._block, 16), groups=range(group, len(starts) - 1))
        self._starts, self._rest, self._at = starts, file.schema_arrow.empty_table(), starts[group]

    def _take(self, count: int) -> pa.Table:
        """The next ``count`` rows."""
        assert self._rest is not None and self._at is not None
        taken = [self._rest]
        with _told(self._path):
            while (have := sum(map(len, taken))) < count:
                if (batch := next(self._batches, None)) is None:
                    raise ValueError(f"it has no row {self._at + have}")
                taken.append(pa.Table.from_batches([batch]))
        self._rest = taken[-1].slice(len(taken[-1]) - (have - count))
        self._at += count
        return pa.concat_tables(taken).slice(0, count)
