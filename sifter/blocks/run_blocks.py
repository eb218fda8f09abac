"""Runs a stage over the rows of a parquet file, block by block; killed at any moment, it goes on where it was.

::

    OUTPUT                       the finished file: the input's rows and columns, in its order, and what the stage adds
    OUTPUT.parts/RUN/            of one identity, while it is at work
        000003-9f86d081.parquet  what the stage adds to the rows of block 3
        000004-1b4f0e98.jsonl    rows of block 4 that are done (``row_journal.py``)
    .OUTPUT.lock                 held while it is written

A part is named by its block's number and a digest of its rows, RUN by a digest of the identity: everything else that
shapes a result. So equal rows under an equal identity are computed once. Another identity has another folder; one
changed row repeats its block; rows appended to the input repeat nothing but an incomplete last block, for a finished
OUTPUT tells its parts as well (its row groups, by name).

Invariants:
- OUTPUT is whole or absent, and replaced by one rename; a part likewise, and it is on disk before it counts.
- Memory holds one block of input and one part, however many rows there are.
- In this process and on Ray (``ray_blocks.py``) the same code runs: one place reads, works and writes.

A worker that meets a bad row says so in a column of its own; what it raises ends the run, and finished blocks stay.
Where ``status`` names that column, the next run works on such rows again, and on no other row of their block.
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ...system.atomic_file import DRAFTS, replacing
from ...system.errors import MemAgentError
from ...system.file_lock import lock_dir
from ...system.signals import stop_if_asked
from .block_reader import BlockReader, NoTable, open_table, read_table
from .row_journal import RowJournal

Row = dict[str, Any]
BLOCK = 64
"""Rows of a block."""
OK = "ok"
"""What a status says of a good row."""
_RUN, _PARTS, _ABOUT = b"mem_agent.run", b"mem_agent.parts", b"mem_agent.about"


class BlockError(MemAgentError):
    """The run cannot begin or end; the message says what lies in the way."""


class Worker(ABC):
    """Made once in each process that works, by ``make_worker``."""

    @abstractmethod
    def __call__(self, rows: list[Row], journal: RowJournal) -> list[Row]:
        """The added columns of each row, in order.

        ``journal.done`` has what was kept of these rows before a kill, by position in ``rows``; ``journal.keep``
        adds to it. Workers that finish a block at once need neither.
        """

    def close(self) -> None:  # noqa: B027
        """Called at the end, in this process; a Ray worker's process just ends."""


@dataclass(frozen=True, slots=True)
class Counts:
    rows: int
    computed: int
    """Rows of blocks that were worked on in this run; rows that a journal already had count, too."""

    @property
    def kept(self) -> int:
        """Rows that an earlier run had finished."""
        return self.rows - self.computed


@dataclass(frozen=True, slots=True)
class OnRay:
    """Where blocks are worked on instead of this process; all its machines see the files under the same paths."""

    address: str = "local"
    """``local`` starts a Ray of this machine for the run; else ``auto``, ``HEAD:6379`` or ``ray://HEAD:10001``."""
    workers: int = 1
    cpus: float = 1.0
    """Of each worker."""
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    number: int
    name: str
    rows: int
    computed: bool


@dataclass(frozen=True)
class BlockRun:
    """What every process that works on blocks knows of the run; pickles."""

    source: Path
    output: Path
    identity: str
    adds: pa.Schema
    block: int
    rows: int
    """Of the input that are asked for."""
    status: str = ""
    """An added column that says OK of a good row; empty: all rows are good."""

    @property
    def name(self) -> str:
        return _digest([self.identity.encode(), self.adds.serialize().to_pybytes(), str(self.block).encode()])[:12]

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.name}.parts") / self.name

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block)

    def part(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def journal(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


class BlockWork:
    """Does blocks of one run in one process."""

    def __init__(self, run: BlockRun, make_worker: Callable[[], Worker]) -> None:
        self._run, self._make_worker = run, make_worker
        self._reader = BlockReader(run.source, run.block, run.rows)
        self._finished = finished_parts(run)
        self._worker: Worker | None = None

    def do(self, number: int) -> Done:
        """Block ``number`` is a part, or a row group of the output, when this returns."""
        rows = self._reader.rows(number)
        name = f"{number:06d}-{_digest(_row_bytes(rows))[:16]}"
        good = self._good(name, len(rows))
        if len(good) == len(rows):
            return Done(number, name, len(rows), computed=False)
        if self._worker is None:
            self._worker = self._make_worker()
        with RowJournal(self._run.journal(name)) as journal:
            for position in good.keys() - journal.done.keys():
                journal.keep(position, good[position])
            added = self._worker(rows, journal)
            assert len(added) == len(rows), f"{len(added)} results for {len(rows)} rows of block {number}"
            _write_part(self._run.part(name), pa.Table.from_pylist(added, schema=self._run.adds))
            journal.remove()
        return Done(number, name, len(rows), computed=True)

    def left(self, number: int) -> int:
        """How many rows of block ``number`` have no good result yet."""
        rows = self._reader.rows(number)
        name = f"{number:06d}-{_digest(_row_bytes(rows))[:16]}"
        with RowJournal(self._run.journal(name)) as journal:
            return len(rows) - len(self._good(name, len(rows)).keys() | journal.done.keys())

    def _good(self, name: str, rows: int) -> Mapping[int, Row]:
        """What earlier runs added to the block's good rows, by position; without a status nothing of it is read."""
        part = self._run.part(name)
        there = _is_part(part, rows)
        if not there and name not in self._finished:
            return {}
        if not self._run.status:
            return {number: {} for number in range(rows)}
        table = read_table(part) if there else _finished_rows(self._run, self._finished[name])
        return {n: row for n, row in enumerate(table.to_pylist()) if row[self._run.status] == OK}

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()


def run_blocks(
    source: Path,
    output: Path,
    make_worker: Callable[[], Worker],
    *,
    identity: str,
    adds: pa.Schema,
    describe: str,
    block: int = BLOCK,
    limit: int | None = None,
    ray: OnRay | None = None,
    status: str = "",
) -> Counts:
    """Write ``output``: the first ``limit`` rows of ``source`` with the columns ``adds``, in place of its own of the
    same names.

    Args:
        make_worker: called where blocks are worked on, and only if there is one to do; pickles where ``ray`` is given.
        identity: everything beside the rows that shapes a result, in one line: models, settings, wording.
        describe: what runs, for messages: ``session embedding of locomo/test``.
        status: the added column that says OK of a good row; the others are worked on again. Such a worker takes
            good rows from ``journal.done``, and keeps no failed one there.

    Raises:
        BlockError: another run writes ``output``, or a file of other settings is in its place.
        MemAgentError: what the worker raises.
    """
    total = open_table(source).metadata.num_rows
    run = BlockRun(source, output, identity, adds, block, total if limit is None else min(limit, total), status)
    with _locked(output, describe):
        _check_output(run)
        _prepare(run, describe)
        blocks = _on_ray(run, make_worker, ray) if ray else _here(run, make_worker)
        done = []
        for one in tqdm(blocks, total=run.blocks, desc=describe, unit="block", disable=None):
            done.append(one)
            stop_if_asked()
        done.sort(key=lambda one: one.number)
        assert [one.number for one in done] == list(range(run.blocks)), "a block is missing"
        _join(run, [one.name for one in done])
    return Counts(run.rows, sum(one.rows for one in done if one.computed))


def rows_left(
    source: Path, output: Path, *, identity: str, adds: pa.Schema, block: int = BLOCK, limit: int | None = None,
    status: str = "",
) -> int:
    """How many rows ``run_blocks`` would work on. Raises BlockError where it would refuse ``output``."""
    total = open_table(source).metadata.num_rows
    run = BlockRun(source, output, identity, adds, block, total if limit is None else min(limit, total), status)
    _check_output(run)
    work = BlockWork(run, _nobody)
    return sum(map(work.left, range(run.blocks)))


def _nobody() -> Worker:
    raise AssertionError("nothing is worked on")


def _here(run: BlockRun, make_worker: Callable[[], Worker]) -> Iterator[Done]:
    work = BlockWork(run, make_worker)
    try:
        yield from map(work.do, range(run.blocks))
    finally:
        work.close()


def _on_ray(run: BlockRun, make_worker: Callable[[], Worker], ray: OnRay) -> Iterator[Done]:
    from .ray_blocks import done_on_ray

    return done_on_ray(run, make_worker, ray)


@contextmanager
def _locked(output: Path, describe: str) -> Iterator[None]:
    def refused(reason: str) -> BlockError:
        return BlockError(f"{describe}: {reason}")

    busy = f"another run writes {output.name}; wait for it to end, or choose another output"
    with lock_dir(output.parent, f".{output.name}.lock", refused, busy=busy, other="choose another output"):
        yield


def _check_output(run: BlockRun) -> None:
    """Raises BlockError where ``output`` is there and is not this run's."""
    if not run.output.exists():
        return
    metadata = _metadata(run.output)
    if metadata.get(_RUN) != run.name.encode():
        about = metadata.get(_ABOUT, b"something else").decode()
        raise BlockError(f"{run.output}: was made with other settings ({about:.200}), not {run.identity:.200}; move "
                         "it away, or choose another output")


def _prepare(run: BlockRun, describe: str) -> None:
    others = [path.name for path in run.folder.parent.glob("*") if path.name != run.name]
    if others:
        print(f"{describe}: {run.folder.parent} keeps unfinished parts of other settings ({', '.join(others)}); they "
              "are left alone", file=sys.stderr)
    run.folder.mkdir(parents=True, exist_ok=True)
    for draft in [*run.folder.glob(DRAFTS), *run.output.parent.glob(f".{run.output.name}{DRAFTS}")]:
        draft.unlink(missing_ok=True)


def finished_parts(run: BlockRun) -> dict[str, int]:
    """Names of the parts that the output has, and the row group of each."""
    if not run.output.exists():
        return {}
    names = _metadata(run.output).get(_PARTS, b"").decode().split()
    return {name: group for group, name in enumerate(names)}


def _metadata(file: Path) -> Mapping[bytes, bytes]:
    return open_table(file).schema_arrow.metadata or {}


# --- parts ---------------------------------------------------------------------------------------------------------


def _write_part(path: Path, table: pa.Table) -> None:
    with replacing(path) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _finished_rows(run: BlockRun, group: int) -> pa.Table:
    """What the stage has added to the rows of a row group of the output."""
    return read_table(run.output, run.adds.names, group)


def _is_part(path: Path, rows: int) -> bool:
    """Whether a whole part is there; a damaged one is told, and made again."""
    if not path.exists():
        return False
    try:
        if len(read_table(path)) == rows:
            return True
    except NoTable:
        pass
    print(f"{path}: is damaged, and is made again", file=sys.stderr)
    return False


def _join(run: BlockRun, names: Sequence[str]) -> None:
    """The input's columns and the parts beside them, as the output; then the parts are gone."""
    finished = {name: group for name, group in finished_parts(run).items() if not run.part(name).exists()}
    if not run.output.exists() or list(finished) != list(names):
        for name in finished.keys() - set(names):  # not asked for today: it stays a part
            _write_part(run.part(name), _finished_rows(run, finished[name]))
        reader = BlockReader(run.source, run.block, run.rows)
        with replacing(run.output) as file, _writer(run, file, names) as writer:
            for number, name in enumerate(names):
                added = _finished_rows(run, finished[name]) if name in finished else read_table(run.part(name))
                table = _beside(reader.table(number), added.cast(run.adds))
                writer.write_table(table.cast(writer.schema), row_group_size=max(1, len(table)))
    _remove_parts(run, set(names))


def _remove_parts(run: BlockRun, names: set[str]) -> None:
    for file in run.folder.iterdir():
        if file.stem in names:
            file.unlink(missing_ok=True)
    for folder in (run.folder, run.folder.parent):
        if any(folder.iterdir()):
            break
        folder.rmdir()


def _beside(rows: pa.Table, added: pa.Table) -> pa.Table:
    assert len(rows) == len(added), f"{len(added)} results for {len(rows)} rows"
    kept = rows.select([name for name in rows.column_names if name not in added.column_names])
    for field, column in zip(added.schema, added.columns, strict=True):
        kept = kept.append_column(field, column)
    return kept.replace_schema_metadata(None)


def _writer(run: BlockRun, file: BinaryIO, names: Sequence[str]) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, _schema(run, names), compression="zstd", write_page_checksum=True)


def _schema(run: BlockRun, names: Sequence[str]) -> pa.Schema:
    own = [field for field in open_table(run.source).schema_arrow if field.name not in run.adds.names]
    about = {_RUN: run.name.encode(), _PARTS: " ".join(names).encode(), _ABOUT: run.identity.encode()}
    return pa.schema([*own, *run.adds], metadata=about)


# --- digests -------------------------------------------------------------------------------------------------------


def _row_bytes(rows: Iterable[Row]) -> Iterator[bytes]:
    import orjson

    for row in rows:
        yield orjson.dumps(row, default=repr, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
