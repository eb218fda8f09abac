"""Training documents in an order that is a pure function of (seed, number).

Group ``k`` is row ``permutation(seed, epoch)[k mod rows]`` with ``epoch = k // rows``. The whole state of the data
order is therefore one integer, the next group number; resuming and replaying need nothing else. Without shuffling the
permutation is the file's own order.

The file is scanned once for line offsets and validated; rows are read back one by one, so its size does not matter.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from ..system.errors import MemAgentError


class DataError(MemAgentError):
    """The training file cannot be used: names file, line and what is wrong."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One document with its question; the hosts' names."""

    prompt: str | list[dict[str, str]]
    label: Any
    metadata: dict[str, Any]


class DataSource:
    """Rows by the number of their group."""

    def __init__(self, path: str | Path, seed: int, *, shuffle: bool = True) -> None:
        self.path = Path(path)
        self._seed, self._shuffle = seed, shuffle
        self.own_tasks: dict[str, int] = {}
        """The tasks that rows name as their own, with the line of the first that does."""
        self._offsets = _scan(self.path, self.own_tasks)

    def __len__(self) -> int:
        return len(self._offsets)

    def row(self, group: int) -> TrainingRow:
        """The row of group ``group``, read afresh: nobody else holds its metadata."""
        epoch, position = divmod(group, len(self._offsets))
        line = _permutation(len(self._offsets), self._seed, epoch)[position] if self._shuffle else position
        row = self._line(line)
        return TrainingRow(row["prompt"], row.get("label"), row["metadata"])

    def _line(self, line: int) -> dict[str, Any]:
        with self.path.open("rb") as file:
            file.seek(self._offsets[line])
            return orjson.loads(file.readline())


@lru_cache(maxsize=4)
def _permutation(rows: int, seed: int, epoch: int) -> list[int]:
    order = list(range(rows))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def _scan(path: Path, own_tasks: dict[str, int]) -> list[int]:
    """Byte offsets of the rows; every line is checked once, and its own task noted."""
    if not path.is_file():
        raise DataError(f"TRAIN_DATA={str(path)!r}: no such file; make it with prepare_data.py")
    offsets, position = [], 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                if own := _checked(path, number, line)["metadata"].get("task"):
                    own_tasks.setdefault(str(own), number)
                offsets.append(position)
            position += len(line)
    if not offsets:
        raise DataError(f"{path}: no rows")
    return offsets


def _checked(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        remedy = "write the file again with prepare_data.py"
        raise DataError(f"{path}, line {number}: not JSON ({error}); {remedy}") from None
    if not isinstance(row, dict) or "prompt" not in row or not isinstance(row.get("metadata"), dict):
        raise DataError(f"{path}, line {number}: expected an object with `prompt` and `metadata`")
    return row
