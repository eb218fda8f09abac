"""Parquet files that somebody else wrote, read in pieces whose size is bounded before they are unpacked.

600 bytes of parquet may be a list of ten million values, and 4 KB sixteen rows of 100 MB: repetition takes no room in
such a file, and as many rows that are equal or null. So a row group is looked at before it is read, by what the
footer says of it::

    unpacked               at most 128 MiB, or 100 times the bytes in the file    texts take 2 to 20 times theirs
    values of lists        at most 2**21 in a column, or one for each byte in the file
    rows of all groups     at most 2**20, or one for each byte of the file: of all columns, as those that are read may
                           say the same of each row. A row that says anything of its own takes more than a byte, and
                           of short or repeated ones there may be as many as Arrow writes into one group unasked
    rows read at once      what was asked for, fewer the larger the group: a long text that all rows share is in a
                           group once, and once for each row that is read

Rows of documents of a million tokens stay far below. The footer is the writer's word: a forged one is not found out,
nor is a list that names one long text of the group's dictionary again and again. A damaged one is: what it says of a
column is asked for only once Arrow has opened that column, as asking for it ends the process where opening it raises.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from .errors import MemAgentError

_BYTES, _TIMES = 1 << 27, 100
_VALUES, _ROWS = 1 << 21, 1 << 20
_TOO_MANY = f"more than {_BYTES} and {_TIMES} times"
_WHOLE, _PIECE = 1 << 26, 1 << 20
_REMEDY = "write it again in row groups of 16 rows (row_group_size=16)"


class TooMuchInside(MemAgentError):
    """A row group, or a file, that is a multiple of what it takes on disk; names the file and the group."""


def batches(
    file: Any, path: Path | str, rows: int, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None,
    size: int | None = None,
) -> Iterator[Any]:
    """The record batches of a ``pyarrow.parquet.ParquetFile``, of at most ``rows`` rows.

    ``size`` are the bytes of a file that ``path`` is no path of. Raises TooMuchInside, and what reading raises.
    """
    row_counts(file.metadata, path, groups, size)
    for group in range(file.metadata.num_row_groups) if groups is None else groups:
        unpacked = check_group(file.metadata, path, group, columns)
        at_once = max(1, min(rows, _BYTES // max(1, unpacked)))
        yield from file.iter_batches(batch_size=at_once, row_groups=[group], columns=columns, use_threads=False)


def row_counts(
    metadata: Any, path: Path | str, groups: Sequence[int] | None = None, size: int | None = None
) -> list[int]:
    """The rows of each of these row groups, or of all. Raises TooMuchInside, and OSError.

    They are what Arrow reads: it stops there where there are more, and ends where there are fewer.
    """
    found = range(metadata.num_row_groups) if groups is None else groups
    counts = [metadata.row_group(group).num_rows for group in found]
    packed = Path(path).stat().st_size if size is None else size
    if min(counts, default=0) < 0:
        raise TooMuchInside(f"{path}: says of a row group that it has {min(counts)} rows; write it again")
    if sum(counts) > max(_ROWS, packed):
        raise TooMuchInside(f"{path}: has {sum(counts)} rows in {packed} bytes, more than {_ROWS} and one for each "
                            "byte; write it again without those that repeat others, or in several files")
    return counts


def buffer_size(path: Path | str) -> int:
    """Bytes of a column that are read at a time, for who opens the file; 0 reads the column of a row group at once.

    A page says how long it is, up to 2 GB, and where columns are read in pieces Arrow takes that much memory before it
    looks whether there is as much. So that is for files whose columns are long.
    """
    return _PIECE if Path(path).stat().st_size > _WHOLE else 0


def check_file(metadata: Any, path: Path, columns: Sequence[str] | None = None) -> None:
    """For who reads all of a file at once. Raises TooMuchInside, and what reading raises."""
    row_counts(metadata, path)
    unpacked = sum(check_group(metadata, path, group, columns) for group in range(metadata.num_row_groups))
    packed = path.stat().st_size
    if unpacked > _bound(packed):
        raise TooMuchInside(f"{path}: has {unpacked} bytes in {packed} of the file, {_TOO_MANY}")


def check_group(metadata: Any, path: Path | str, group: int, columns: Sequence[str] | None = None) -> int:
    """The bytes of a row group once it is unpacked. Raises TooMuchInside, and what reading raises.

    ``metadata`` is a ``pyarrow.parquet.FileMetaData``.
    """
    import pyarrow.parquet as pq  # here: JSON lines are read without it

    where = f"{path}: row group {group + 1} has"
    schema = pq.ParquetSchema(metadata)  # metadata.schema is held by what it holds: neither goes before a full gc
    names = [schema.column(number).path for number in range(metadata.num_columns)]
    read = [number for number, name in enumerate(names) if _is_of(name, columns)]
    _open_columns(metadata, group, columns)
    about = [metadata.row_group(group).column(number) for number in read]
    packed, unpacked = (sum(getattr(column, f"total_{kind}_size") for column in about)
                        for kind in ("compressed", "uncompressed"))
    if unpacked > _bound(packed):
        raise TooMuchInside(f"{where} {unpacked} bytes in {packed} of the file, {_TOO_MANY}; {_REMEDY}")
    for number, column in zip(read, about, strict=True):
        if schema.column(number).max_repetition_level and column.num_values > max(_VALUES, packed):
            raise TooMuchInside(f"{where} {column.num_values} values in the lists of {names[number]}, more than "
                                f"{_VALUES} and one for each byte; {_REMEDY}")
    return unpacked


def _open_columns(metadata: Any, group: int, columns: Sequence[str] | None) -> None:
    """Raises what reading would of these columns' part of the footer; of their pages nothing is read."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(_NoPages(), metadata=metadata, pre_buffer=False, buffer_size=1)
    with suppress(_PageWanted):
        next(file.iter_batches(batch_size=1, row_groups=[group], columns=columns, use_threads=False), None)


class _PageWanted(Exception):
    """All columns are open."""


class _NoPages(io.RawIOBase):
    """A file of any size, to whose bytes nobody gets."""

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return offset

    def tell(self) -> int:
        return 1 << 62

    def read(self, size: int = -1) -> NoReturn:
        raise _PageWanted


def _is_of(name: str, columns: Sequence[str] | None) -> bool:
    return columns is None or any(f"{name}.".startswith(f"{column}.") for column in columns)


def _bound(packed: int) -> int:
    return max(_BYTES, _TIMES * packed)
