"""Blocks of one run, done in one process: in this one, or in an actor of Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from .block_reader import BlockReader, read_table
from .block_run import BlockRun, Done, part_name, row_digests, row_key
from .earlier_rows import EarlierRows
from .output_file import finished_parts, finished_rows, write_part
from .row_journal import RowJournal
from .worker import OK, Row, Worker


class BlockWork:
    def __init__(self, run: BlockRun, make_worker: Callable[[], Worker]) -> None:
        self._run, self._make_worker = run, make_worker
        self._reader = BlockReader(run.source, run.block, run.rows)
        self._finished = finished_parts(run)
        self._earlier = EarlierRows(run) if run.status else None
        self._worker: Worker | None = None

    def do(self, number: int) -> Done:
        """Block ``number`` is a part, or a row group of the output, when this returns."""
        rows, name, keys = self._read(number)
        if self._is_whole(name, len(rows)):
            return Done(number, name, len(rows), computed=False)
        with RowJournal(self._run.journal(name), keys) as journal:
            known = self._known(name, keys, journal)
            if len(known) < len(rows):
                added = self._worked_on(rows, known, journal)
            else:
                added = [known[position] for position in range(len(rows))]
            assert len(added) == len(rows), f"{len(added)} results for {len(rows)} rows of block {number}"
            table = pa.Table.from_pylist(added, schema=self._run.adds)
            write_part(self._run.part(name), table, keys if self._run.status else ())
            journal.remove()
        return Done(number, name, len(rows), computed=len(known) < len(rows))

    def left(self, number: int) -> int:
        """How many rows of block ``number`` have no good result yet."""
        rows, name, keys = self._read(number)
        if self._is_whole(name, len(rows)):
            return 0
        with RowJournal(self._run.journal(name), keys) as journal:
            return len(rows) - len(self._known(name, keys, journal))

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _read(self, number: int) -> tuple[list[Row], str, list[str]]:
        """The rows, the part's name and the rows' keys."""
        rows = self._reader.rows(number)
        digests = row_digests(rows)
        return rows, part_name(number, digests), list(map(row_key, digests))

    def _worked_on(self, rows: list[Row], known: dict[int, Row], journal: RowJournal) -> list[Row]:
        for position in known.keys() - journal.done.keys():
            journal.keep(position, known[position])
        if self._worker is None:
            self._worker = self._make_worker()
        return self._worker(rows, journal)

    def _is_whole(self, name: str, rows: int) -> bool:
        """Whether all rows of a block have good results under its name."""
        if not self._run.status:
            return self._run.part(name).exists() or name in self._finished
        said = [row[self._run.status] for row in self._of_its_name(name)]
        return len(said) == rows and all(status == OK for status in said)

    def _of_its_name(self, name: str) -> list[Row]:
        part = self._run.part(name)
        if part.exists():
            return read_table(part).to_pylist()
        return finished_rows(self._run, self._finished[name]).to_pylist() if name in self._finished else []

    def _known(self, name: str, keys: Sequence[str], journal: RowJournal) -> dict[int, Row]:
        """Good results of the block's rows, by position: of its own name, its journal, and whatever block had them."""
        known = dict(journal.done)
        if self._earlier is None:
            return known
        for position, row in enumerate(self._of_its_name(name)):
            if row[self._run.status] == OK:
                known.setdefault(position, row)
        for position, key in enumerate(keys):
            if position not in known and (found := self._earlier.row(key)) is not None:
                known[position] = found
        return known
