"""Rows of a training file by their number, of whatever size the file is: JSON lines, or parquet.

JSON lines are scanned once for byte offsets, and every line is checked; a row is then one seek and one line. Of a
parquet file the footer is read and kept, some 300 bytes a row in groups of 16, and the column of tasks is read; a row
is read out of its row group, so such files are best written with small groups (``prepare-rl-data``: 16 rows). Either
way rows stay on disk. A file that is written anew meanwhile is refused: that is known by the line's checksum, or by
what the footer says, as a file may be touched or copied during a run.

A row has ``prompt``, perhaps ``label``, and ``metadata``. A key that other rows of a parquet file have and this one
has not is left out, as in JSON lines; arrays are lists.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from ..system.bounded_json import loads
from ..system.bounded_parquet import TooMuchInside, batches, row_counts
from ..system.errors import MemAgentError
from .kept_footer import KeptFooter, WrittenAnew

ROW_GROUP = 16
"""Rows of a group in the parquet files that the pack writes."""
_COLUMNS = ("prompt", "label", "metadata")


class DataError(MemAgentError):
    """The training file cannot be used: names file, line and what is wrong."""


class RowFile(Protocol):
    """One file; ``tasks`` are those that rows name as their own, with the number (from 1) of the first that does."""

    tasks: dict[str, int]

    def __len__(self) -> int: ...

    def row(self, number: int) -> dict[str, Any]: ...


def open_rows(path: Path) -> RowFile:
    """Raises DataError."""
    if not path.is_file():
        raise DataError(f"TRAIN_DATA={str(path)!r}: no such file; make it with prepare_data.py")
    return ParquetRows(path) if path.suffix == ".parquet" else JsonLines(path)


def holds_rows(path: Path) -> bool:
    """Whether it is a training file: by its columns, or by its first row alone."""
    if not path.is_file():
        return False
    try:
        return len(ParquetRows(path)) > 0 if path.suffix == ".parquet" else _begins_with_a_row(path)
    except (DataError, OSError):
        return False


def _begins_with_a_row(path: Path) -> bool:
    with path.open("rb") as file:
        first = next(filter(bytes.strip, file), None)
    return first is not None and bool(_checked(path, 1, first))


class JsonLines:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.tasks: dict[str, int] = {}
        self._offsets: list[int] = []
        self._sums = array("I")
        position = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    note_task(self.tasks, _checked(path, number, line)["metadata"].get("task"), number)
                    self._offsets.append(position)
                    self._sums.append(_sum_of(line))
                position += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def row(self, number: int) -> dict[str, Any]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offsets[number])
                line = file.readline()
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read any more ({error.strerror}); start again") from None
        if _sum_of(line) != self._sums[number]:
            raise DataError(str(WrittenAnew(self.path)))
        return loads(line)


def _sum_of(line: bytes) -> int:
    return zlib.crc32(line.strip())  # the last line may get an end, and others behind it


class ParquetRows:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # here: JSON lines are read without it

        self.path = path
        self.tasks: dict[str, int] = {}
        self._footer = KeptFooter(path)
        try:
            with self._footer.open() as file:
                schema, counts = file.schema_arrow, row_counts(file.metadata, path)
                if not {"prompt", "metadata"} <= set(schema.names) or not pa.types.is_struct(
                    schema.field("metadata").type
                ):
                    raise DataError(f"{path}: expected columns `prompt` and `metadata`, the latter of named fields; "
                                    f"it has {', '.join(schema.names)}")
                self._columns = [name for name in _COLUMNS if name in schema.names]
                if schema.field("metadata").type.get_field_index("task") >= 0:
                    for number, task in enumerate(_tasks(file, path), 1):
                        note_task(self.tasks, task, number)
        except (OSError, ValueError, ArithmeticError, pa.ArrowException) as error:  # arithmetic: a date out of range
            raise _unreadable(path, error) from None
        except TooMuchInside as error:
            raise DataError(str(error)) from None
        self._starts = [0, *accumulate(counts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, number: int) -> dict[str, Any]:
        import pyarrow as pa

        try:
            return self._checked(number, self._read(number))
        except (OSError, ValueError, ArithmeticError, pa.ArrowException) as error:  # pages are not looked at before
            raise _unreadable(self.path, error, f", row {number + 1}") from None
        except (TooMuchInside, WrittenAnew) as error:
            raise DataError(str(error)) from None

    def _read(self, number: int) -> dict[str, Any]:
        group = bisect_right(self._starts, number) - 1
        within = number - self._starts[group]
        with self._footer.open() as file:
            there = [group] if group < file.metadata.num_row_groups else []
            for batch in batches(file, self.path, ROW_GROUP, self._columns, there):
                if within < len(batch):
                    return batch.slice(within, 1).to_pylist()[0]
                within -= len(batch)
        raise DataError(f"{self.path} has become shorter, or says that it is longer; write it again")

    def _checked(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        if row["prompt"] is None or row["metadata"] is None:
            raise DataError(f"{self.path}, row {number + 1}: expected `prompt` and `metadata`")
        return row | {"metadata": {name: value for name, value in row["metadata"].items() if value is not None}}


def _unreadable(path: Path, error: Exception, where: str = "") -> DataError:
    return DataError(f"{path}{where}: no readable parquet file ({' '.join(str(error).split())[:160]})")


def note_task(tasks: dict[str, int], own: Any, number: int) -> None:
    if own:
        tasks.setdefault(str(own), number)


def _tasks(file: Any, path: Path) -> Iterator[Any]:
    for batch in batches(file, path, 1024, ["metadata.task"]):
        for entry in batch.column("metadata").to_pylist():
            yield entry["task"] if entry else None


def _checked(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = loads(line)
    except ValueError as error:
        remedy = "write the file again with prepare_data.py"
        raise DataError(f"{path}, line {number}: not JSON ({error}); {remedy}") from None
    if not isinstance(row, dict) or "prompt" not in row or not isinstance(row.get("metadata"), dict):
        raise DataError(f"{path}, line {number}: expected an object with `prompt` and `metadata`")
    return row
