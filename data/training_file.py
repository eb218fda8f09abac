"""Training rows in an order that is a pure function of (seed, number), from the files that TRAIN_DATA means.

::

    data/train.jsonl                           that file
    data/v1121-0/train_0.parquet               that shard alone
    data/v1121-0                               its train_*.parquet
    data/v1121-0/train_*.parquet               those that match
    ["data/v1121-0/train_2.parquet", ...]      those, in this order: MemSifter's TRAIN_FILE

Shards of a folder come in the order of their numbers, 9 before 10. They are parquet files of one folder, and share one
store of documents (``document_store``).

Group ``k`` is row ``permutation(seed, epoch)[k mod rows]`` with ``epoch = k // rows``. The whole state of the data
order is therefore one integer, the next group number; resuming and replaying need nothing else. Without shuffling the
permutation is the files' own order, which is also the default of a curriculum: a file whose first row has
``metadata.curriculum`` (``prepare --synthesize`` writes it).

Rows stay on disk, whatever size they are. JSON lines are scanned once for byte offsets, and every line is checked; a
row is then one seek and one line. A row of a parquet file is read out of its row group, so such files are best written
with small groups (``prepare-rl-data``: 16 rows). A row has ``prompt``, perhaps ``label``, and ``metadata``; what other
rows of a parquet file have in it and this one has not is left out, as in JSON lines.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from ..system.errors import reason_of
from .rows import BATCH_ROWS, BadRow, DataError, open_file

SHARDS = "train_*.parquet"
_SLICE = re.compile(r"@\[(-?[0-9]+)?:(-?[0-9]+)?\]$")  # hosts accept train.jsonl@[0:100] as training data


class TrainingRow(NamedTuple):
    """One document with its question; the hosts' names."""

    prompt: str | list[dict[str, str]]
    label: Any
    metadata: dict[str, Any]


class DataSource:
    """Rows by the number of their group. Raises DataError, which names file, line and what is wrong."""

    def __init__(self, path: str | Path, seed: int, *, shuffle: bool | None = None) -> None:
        """``shuffle``: None means unless it is a curriculum."""
        self.path, self._seed = Path(path), seed
        self._files = [_ParquetRows(file) if file.suffix == ".parquet" else _JsonLines(file)
                       for file in training_files(path)]
        self._starts = [0, *accumulate(file.rows for file in self._files)]
        if not len(self):
            raise DataError(f"{path}: no rows")
        self.shuffle = not is_curriculum(path) if shuffle is None else shuffle

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, group: int) -> TrainingRow:
        """The row of group ``group``, read afresh: nobody else holds its metadata."""
        epoch, position = divmod(group, len(self))
        row = self.raw(_permutation(len(self), self._seed, epoch)[position] if self.shuffle else position)
        return TrainingRow(row["prompt"], row.get("label"), row["metadata"])

    def raw(self, number: int) -> dict[str, Any]:
        """Row ``number`` of the files, from 0."""
        shard = bisect_right(self._starts, number) - 1
        return self._files[shard].row(number - self._starts[shard])


@lru_cache(maxsize=4)
def _permutation(rows: int, seed: int, epoch: int) -> list[int]:
    order = list(range(rows))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


# --- the files -------------------------------------------------------------------------------------------------------
def training_files(train_data: str | Path) -> tuple[Path, ...]:
    """The files, at least one. Raises DataError."""
    path, text = Path(train_data), str(train_data)
    if not is_sharded(path):
        files: tuple[Path, ...] = (path,)
    elif not (files := _named(text)):
        found = path.glob(SHARDS) if path.is_dir() else path.parent.glob(path.name)
        files = tuple(sorted(found, key=_by_number))
    if absent := [file for file in files or [path / SHARDS if path.is_dir() else path] if not file.is_file()]:
        raise DataError(f"TRAIN_DATA={text!r}: {absent[0]}: no such file; make it with mem-agent prepare, shards with "
                        "mem-agent prepare-rl-data")
    if len(files) > 1 and {(file.parent, file.suffix) for file in files} != {(files[0].parent, ".parquet")}:
        raise DataError(f"TRAIN_DATA={text!r}: several files must be .parquet files of one folder; rows in JSON lines "
                        "go into one file")
    return files


def is_sharded(train_data: str | Path) -> bool:
    """Whether it is written as anything but one file."""
    text, path = str(train_data), Path(train_data)
    return bool(_named(text)) or path.is_dir() or ("*" in text and not path.exists())


def shard_folder(train_data: str | Path) -> Path:
    """The folder of the files, whether they are there or not."""
    first = (*_named(str(train_data)), Path(train_data))[0]
    return first if first.is_dir() else first.parent


def _named(text: str) -> tuple[Path, ...]:
    """The files of a list; none of any other text."""
    return tuple(map(Path, yaml.safe_load(text))) if text.startswith("[") else ()


def without_slice(train_data: str | Path) -> Path:
    """The file itself of ``a/train.jsonl@[0:100]``."""
    return Path(_SLICE.sub("", str(train_data)))


def row_slice(train_data: str | Path) -> slice:
    """The rows that ``a/train.jsonl@[0:100]`` means; all of them without a slice."""
    found = _SLICE.search(str(train_data))
    return slice(*(int(bound) if bound else None for bound in found.groups())) if found else slice(None)


def is_curriculum(train_data: str | Path) -> bool:
    """Whether the first row says that rows are to be read in the files' order; False where there is none to read."""
    with suppress(DataError, BadRow, StopIteration):
        metadata = next(open_file(training_files(without_slice(train_data))[0])).fields.get("metadata")
        return isinstance(metadata, dict) and bool(metadata.get("curriculum"))
    return False


def data_bytes(path: str | Path) -> int:
    """The size of all files of a training set."""
    return sum(file.stat().st_size for file in training_files(path))


def _by_number(path: Path) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in re.split("([0-9]+)", path.name)]


class _JsonLines:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: list[int] = []
        position = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    _checked(f"{path}, line {number}", line)
                    self._offsets.append(position)
                position += len(line)
        self.rows = len(self._offsets)

    def row(self, number: int) -> dict[str, Any]:
        with self._path.open("rb") as file:
            file.seek(self._offsets[number])
            return _checked(f"{self._path}, row {number + 1}", file.readline())


def _checked(where: str, line: bytes) -> dict[str, Any]:
    """The row of a JSON text. Raises DataError."""
    with suppress(ValueError):
        row = orjson.loads(line)
        if isinstance(row, dict) and row.get("prompt") is not None and isinstance(row.get("metadata"), dict):
            return row
    raise DataError(f"{where}: expected an object with `prompt` and `metadata`; make the file again")


class _ParquetRows:
    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq  # here: JSON lines are read without it

        self._path = path
        try:
            with pq.ParquetFile(path) as file:
                self._footer = file.metadata
                if not {"prompt", "metadata"} <= set(file.schema_arrow.names):
                    raise ValueError("it lacks the column prompt or metadata; make it again")
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: {reason_of(error)}") from None
        groups = range(self._footer.num_row_groups)
        self._starts = [0, *accumulate(self._footer.row_group(group).num_rows for group in groups)]
        self.rows = self._starts[-1]

    def row(self, number: int) -> dict[str, Any]:
        import pyarrow.parquet as pq

        group = bisect_right(self._starts, number) - 1
        batch, place = divmod(number - self._starts[group], BATCH_ROWS)
        with pq.ParquetFile(self._path, metadata=self._footer) as file:
            batches = file.iter_batches(BATCH_ROWS, row_groups=[group], columns=["prompt", "label", "metadata"])
            row = next(islice(batches, batch, None)).slice(place, 1).to_pylist()[0]
        return row | {"metadata": {name: value for name, value in row["metadata"].items() if value is not None}}
