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
_REMEDY = "write it again in row groups of 16 rows (row_group_size=16)"


class TooMuchInside(MemAgentError):
    """A row group that is a multiple of what it takes in the file; names the file and the group."""


def batches(
    file: Any, path: Path | str, rows: int, columns: Sequence[str] | None = None, groups: Iterable[int] | None = None
) -> Iterator[Any]:
    """The record batches of a ``pyarrow.parquet.ParquetFile``, of at most ``rows`` rows. Raises TooMuchInside."""
    for group in range(file.metadata.num_row_groups) if groups is None else groups:
        unpacked = check_group(file.metadata, path, group)
        at_once = max(1, min(rows, _BYTES // max(1, unpacked)))
        yield from file.iter_batches(batch_size=at_once, row_groups=[group], columns=columns, use_threads=False)


def check_group(metadata: Any, path: Path | str, group: int) -> int:
    """The bytes of a row group once it is unpacked. Raises TooMuchInside.

    ``metadata`` is a ``pyarrow.parquet.FileMetaData``.
    """
    about = metadata.row_group(group)
    columns = [about.column(number) for number in range(about.num_columns)]
    packed, unpacked = (sum(getattr(column, f"total_{kind}_size") for column in columns)
                        for kind in ("compressed", "uncompressed"))
    if unpacked > max(_BYTES, _TIMES * packed):
        raise TooMuchInside(f"{path}: row group {group + 1} has {unpacked} bytes in {packed} of the file, more than "
                            f"{_BYTES} and {_TIMES} times; {_REMEDY}")
    for number, column in enumerate(columns):
        values = column.num_values
        if values > max(_VALUES, packed) and metadata.schema.column(number).max_repetition_level:
            raise TooMuchInside(f"{path}: row group {group + 1} has {values} values in the lists of "
                                f"{column.path_in_schema}, more than {_VALUES} and one for each byte; {_REMEDY}")
    return unpacked
