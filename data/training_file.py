"""Training documents in an order that is a pure function of (seed, number).

Group ``k`` is row ``permutation(seed, epoch)[k mod rows]`` with ``epoch = k // rows``. The whole state of the data
order is therefore one integer, the next group number; resuming and replaying need nothing else. Without shuffling the
permutation is the files' own order.

Files are opened and checked once (``row_files``); rows are read back one by one, so their size does not matter.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from .row_files import DataError, open_rows
from .shards import training_files

__all__ = ["DataError", "DataSource", "TrainingRow", "data_bytes"]


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One document with its question; the hosts' names."""

    prompt: str | list[dict[str, str]]
    label: Any
    metadata: dict[str, Any]


class DataSource:
    """Rows by the number of their group; ``path`` is one file, or shards as ``shards`` says."""

    def __init__(self, path: str | Path, seed: int, *, shuffle: bool = True) -> None:
        self.path = Path(path)
        self._seed, self._shuffle = seed, shuffle
        self._files = [open_rows(file) for file in training_files(path)]
        self._starts = [0, *accumulate(map(len, self._files))]
        self.own_tasks: dict[str, int] = {}
        """The tasks that rows name as their own, with the line of the first that does."""
        for start, file in zip(self._starts, self._files, strict=False):
            for name, number in file.tasks.items():
                self.own_tasks.setdefault(name, start + number)
        if not len(self):
            raise DataError(f"{path}: no rows")

    def __len__(self) -> int:
        return self._starts[-1]

    def row(self, group: int) -> TrainingRow:
        """The row of group ``group``, read afresh: nobody else holds its metadata."""
        epoch, position = divmod(group, len(self))
        row = self.raw(_permutation(len(self), self._seed, epoch)[position] if self._shuffle else position)
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


def data_bytes(path: str | Path) -> int:
    """The size of all files of a training set."""
    return sum(file.stat().st_size for file in training_files(path))
