"""Training rows on their way to shards: spooled to a file without a name, shuffled by place, written in even parts.

Memory holds the places of the rows and one row group; the spool is as large as the rows, in the output's folder, and
the system takes it back however the process ends.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ...data.rows import BATCH_ROWS as ROW_GROUP

_TEXTS = pa.list_(pa.string())
_NUMBERS = pa.list_(pa.int32())
SCHEMA = pa.schema([
    ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    ("label", pa.string()),
    ("metadata", pa.struct([
        ("task", pa.string()), ("id", pa.string()), ("dataset", pa.string()), ("shown", pa.int32()),
        ("gold", _NUMBERS), ("question", pa.string()), ("question_date", pa.string()), ("language", pa.string()),
        ("answers", _TEXTS), ("options", _TEXTS), ("history_id", pa.string()), ("session_tokens", _NUMBERS),
    ])),
])
"""Of all shards, so that hosts may read them as one file."""


class Spool:
    """Rows by number, in the order in which they were put."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)
        self._places: list[tuple[int, int]] = []
        self._end = 0

    def put(self, row: dict[str, Any]) -> None:
        content = orjson.dumps(row)
        self._file.write(content)
        self._places.append((self._end, len(content)))
        self._end += len(content)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            offset, size = self._places[number]
            self._file.seek(offset)
            yield orjson.loads(self._file.read(size))

    def close(self) -> None:
        self._file.close()


def shuffled_shards(rows: int, most: int, seed: int) -> list[list[int]]:
    """Row numbers of each shard: as few shards of at most ``most`` rows as there can be, of sizes that differ by one
    at most.
    """
    order = list(range(rows))
    random.Random(f"{seed}/shards").shuffle(order)
    count = -(-rows // most)
    bounds = [rows * shard // count for shard in range(count + 1)]
    return [order[begin:end] for begin, end in pairwise(bounds)]


def write_shard(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        while group := list(islice(rows, ROW_GROUP)):
            writer.write_table(_table(group))


def _table(group: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(group), schema=SCHEMA)
