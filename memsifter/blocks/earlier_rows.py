"""Good rows that earlier runs have, wherever they stood: of blocks that have changed since, by what each row is.

Stage 2 repairs one row of a block of 64, and its block has another name; the 63 others are still known here, and
stage 3 asks for one. So are rows that have moved because others were put before them.

Memory: two short strings a row, once a row is looked for.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pyarrow as pa

from .block_reader import read_table
from .block_run import BlockRun
from .output_file import finished_parts, finished_rows, row_keys
from .row_journal import read_journal
from .worker import OK, Row


class EarlierRows:
    """Of a run with a status, as its files are when the first row is looked for."""

    def __init__(self, run: BlockRun) -> None:
        assert run.status, "rows of a run without a status are all good, by block"
        self._run = run
        self._last: tuple[Path | int, list[Row]] | None = None

    def row(self, key: str) -> Row | None:
        """What was added to the row of this key; None where no good one is known."""
        if key in self._journalled:
            return self._journalled[key]
        if key not in self._places:
            return None
        place, at = self._places[key]
        if self._last is None or self._last[0] != place:
            self._last = (place, self._table(place).to_pylist())
        return self._last[1][at]

    def _table(self, place: Path | int) -> pa.Table:
        return read_table(place) if isinstance(place, Path) else finished_rows(self._run, place)

    @cached_property
    def _journalled(self) -> dict[str, Row]:
        return {key: row for path in sorted(self._run.folder.glob("*.jsonl")) for key, row in read_journal(path)}

    @cached_property
    def _places(self) -> dict[str, tuple[Path | int, int]]:
        """A part, or a row group of the output, and the row in it."""
        found: dict[str, tuple[Path | int, int]] = {}
        for path in sorted(self._run.folder.glob("*.parquet")):
            for keys in row_keys(path):
                found |= self._good(path, keys, read_table(path)[self._run.status].to_pylist())
        groups = sorted(finished_parts(self._run).values())
        held = row_keys(self._run.output) if groups else []
        for group, keys in zip(groups if held else [], held, strict=True):
            said = finished_rows(self._run, group, [self._run.status])
            found |= self._good(group, keys, said[self._run.status].to_pylist())
        return found

    def _good(self, place: Path | int, keys: list[str], said: list[str]) -> dict[str, tuple[Path | int, int]]:
        return {key: (place, at) for at, (key, status) in enumerate(zip(keys, said, strict=True)) if status == OK}
