"""Rows of a training file by their number, of whatever size the file is: JSON lines, or parquet.

JSON lines are scanned once for byte offsets, and every line is checked; a row is then one seek and one line. Of a
parquet file the footer and the column of tasks are read; a row is read out of its row group, so such files are best
written with small groups (``prepare-rl-data``: 16 rows). Either way rows stay on disk.

A row has ``prompt``, perhaps ``label``, and ``metadata``. A key that other rows of a parquet file have and this one
has not is left out, as in JSON lines.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import orjson

from ..system.errors import MemAgentError, reason_of

ROW_GROUP = 16
"""Rows of a group in the parquet files that the pack writes."""


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


class JsonLines:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.tasks: dict[str, int] = {}
        self._offsets: list[int] = []
        position = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    if task := _checked(path, number, line)["metadata"].get("task"):
                        self.tasks.setdefault(str(task), number)
                    self._offsets.append(position)
                position += len(line)

    def __len__(self) -> int:
        return len(self._offsets)

    def row(self, number: int) -> dict[str, Any]:
        with self.path.open("rb") as file:
            file.seek(self._offsets[number])
            return _checked(self.path, number + 1, file.readline())


class ParquetRows:
    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # here: JSON lines are read without it
        import pyarrow.parquet as pq

        self.path = path
        self.tasks: dict[str, int] = {}
        try:
            with pq.ParquetFile(path) as file:
                self._footer, schema = file.metadata, file.schema_arrow
                if not {"prompt", "metadata"} <= set(schema.names) or not pa.types.is_struct(
                    schema.field("metadata").type
                ):
                    raise DataError(f"{path}: expected columns `prompt` and `metadata`, the latter of named fields; "
                                    f"it has {', '.join(schema.names)}")
                self._columns = [name for name in ("prompt", "label", "metadata") if name in schema.names]
                if schema.field("metadata").type.get_field_index("task") >= 0:
                    for number, entry in enumerate(file.read(["metadata.task"])["metadata"].to_pylist(), 1):
                        if entry and entry["task"]:
                            self.tasks.setdefault(str(entry["task"]), number)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: no readable parquet file ({reason_of(error)})") from None
        groups = range(self._footer.num_row_groups)
        self._starts = [0, *accumulate(self._footer.row_group(group).num_rows for group in groups)]

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, number: int) -> dict[str, Any]:
        try:
            row = self._read(number)
        except (OSError, ValueError) as error:  # pages are not looked at before
            raise DataError(f"{self.path}, row {number + 1}: cannot be read ({reason_of(error)})") from None
        if row["prompt"] is None or row["metadata"] is None:
            raise DataError(f"{self.path}, row {number + 1}: expected `prompt` and `metadata`")
        return row | {"metadata": {name: value for name, value in row["metadata"].items() if value is not None}}

    def _read(self, number: int) -> dict[str, Any]:
        import pyarrow.parquet as pq

        group = bisect_right(self._starts, number) - 1
        within = number - self._starts[group]
        with pq.ParquetFile(self.path, metadata=self._footer) as file:
            for batch in file.iter_batches(ROW_GROUP, row_groups=[group], columns=self._columns):
                if within < len(batch):
                    return batch.slice(within, 1).to_pylist()[0]
                within -= len(batch)
        raise ValueError("the file has become shorter")


def _checked(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except ValueError as error:
        remedy = "write the file again with prepare_data.py"
        raise DataError(f"{path}, line {number}: not JSON ({error}); {remedy}") from None
    if not isinstance(row, dict) or "prompt" not in row or not isinstance(row.get("metadata"), dict):
        raise DataError(f"{path}, line {number}: expected an object with `prompt` and `metadata`")
    return row
