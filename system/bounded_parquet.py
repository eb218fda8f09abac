"""Parquet files that somebody else wrote, read in pieces whose size is bounded before they are unpacked.

600 bytes of parquet may be a list of ten million values, and 4 KB sixteen rows of 100 MB: repetition takes no room in
such a file. So a row group is looked at before it is read, by what the footer says of it::

    unpacked               at most 128 MiB, or 100 times the bytes in the file    texts take 2 to 20 times theirs
    values of lists        at most 2**21 in a column, or one for each byte in the file
    rows read at once      what was asked for, fewer the larger the group: a long text that all rows share is in a
                           group once, and once for each row that is read

Rows of documents of a million tokens stay far below. The footer is the writer's word: a forged one is not found out,
nor is a list that names one long text of the group's dictionary again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .errors import MemAgentError

_BYTES, _TIMES = 1 << 27, 100
_VALUES = 1 << 21
_TOO_MANY = f"more than {_BYTES} and {_TIMES} times"
_REMEDY = "write it again in row groups of 16 rows (row_group_size=16)"


class TooMuchInside(MemAgentError):
    """A row group that is a multiple of what it takes in the file; names the file and the group."""


def batches(
    file: Any, path: Path | str, rows: int, columns: Sequence[str] | None = None, groups: Iterable[int] | None = None
) -> Iterator[Any]:
    """The record batches of a ``pyarrow.parquet.ParquetFile``, of at most ``rows`` rows. Raises TooMuchInside."""
    for group in range(file.metadata.num_row_groups) if groups is None else groups:
        unpacked = check_group(file.metadata, path, group, columns)
        at_once = max(1, min(rows, _BYTES // max(1, unpacked)))
        yield from file.iter_batches(batch_size=at_once, row_groups=[group], columns=columns, use_threads=False)


def check_file(metadata: Any, path: Path, columns: Sequence[str] | None = None) -> None:
    """For who reads all of a file at once. Raises TooMuchInside."""
    unpacked = sum(check_group(metadata, path, group, columns) for group in range(metadata.num_row_groups))
    packed = path.stat().st_size
    if unpacked > _bound(packed):
        raise TooMuchInside(f"{path}: has {unpacked} bytes in {packed} of the file, {_TOO_MANY}")


def check_group(metadata: Any, path: Path | str, group: int, columns: Sequence[str] | None = None) -> int:
    """The bytes of a row group once it is unpacked. Raises TooMuchInside.

    ``metadata`` is a ``pyarrow.parquet.FileMetaData``.
    """
    about, where = metadata.row_group(group), f"{path}: row group {group + 1} has"
    read = [number for number in range(about.num_columns) if _is_of(about.column(number).path_in_schema, columns)]
    packed, unpacked = (sum(getattr(about.column(number), f"total_{kind}_size") for number in read)
                        for kind in ("compressed", "uncompressed"))
    if unpacked > _bound(packed):
        raise TooMuchInside(f"{where} {unpacked} bytes in {packed} of the file, {_TOO_MANY}; {_REMEDY}")
    for number in read:
        column = about.column(number)
        values, name = column.num_values, column.path_in_schema
        if not metadata.schema.column(number).max_repetition_level:
            continue
        if values > max(_VALUES, packed):
            raise TooMuchInside(f"{where} {values} values in the lists of {name}, more than {_VALUES} and one for "
                                f"each byte; {_REMEDY}")
    return unpacked


def _is_of(name: str, columns: Sequence[str] | None) -> bool:
    return columns is None or any(f"{name}.".startswith(f"{column}.") for column in columns)


def _bound(packed: int) -> int:
    return max(_BYTES, _TIMES * packed)
