"""Runs a stage over the rows of a parquet file, block by block; killed at any moment, it goes on where it was.

::

    OUTPUT                       the finished file: the input's rows and columns, in its order, and what the stage adds
    OUTPUT.parts/RUN/            of one identity, while it is at work (``block_run.py``)
        000003-9f86d081.parquet  what the stage adds to the rows of block 3 (``output_file.py``)
        000004-1b4f0e98.jsonl    rows of block 4 that are done (``row_journal.py``)
    .OUTPUT.lock                 there, and held, while it is written

Another identity has another folder. Rows appended to the input repeat nothing but an incomplete last block, for a
finished OUTPUT tells its parts as well (its row groups, by name). A changed row repeats its block; where ``status``
names a column that says which rows are good, it repeats itself alone, and so does a row that was not good: all other
rows are known by what they are, wherever they stand now (``earlier_rows.py``).

Invariants:
- OUTPUT is whole or absent, and replaced by one rename; a part likewise, and it is on disk before it counts.
- Memory holds one block of input and one part, however many rows there are.
- In this process and on Ray (``ray_blocks.py``) the same code runs: one place reads, works and writes
  (``block_work.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from tqdm import tqdm

from ...system.files import folder_lock, remove_drafts
from ...system.signals import stop_if_asked
from .block_reader import open_table
from .block_run import BLOCK, BlockRun, Counts, Done, OnRay
from .block_work import BlockWork
from .output_file import check_output, join
from .worker import Worker


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
    data: str = "",
) -> Counts:
    """Write ``output``: the first ``limit`` rows of ``source`` with the columns ``adds``, in place of its own of the
    same names.

    Args:
        make_worker: called where blocks are worked on, and only if there is one to do; pickles where ``ray`` is given.
        identity: everything beside the rows that shapes a result, in one line: models, settings, wording.
        describe: what runs, for messages: ``session embedding of locomo/test``.
        status: the added column that says OK of a good row; the others are worked on again. Such a worker takes
            good rows from ``journal.done``, and keeps no failed one there.
        data: the data set and split; the output says it.

    Raises:
        BlockError: another run writes ``output``, or a file of other settings is in its place.
        NoTable: ``source`` cannot be read.
        MemAgentError: what the worker raises.
    """
    run = _run(source, output, identity, adds, block, limit, status, data)
    busy = "another run writes it; wait for it to end, or choose another output"
    with folder_lock(output.parent, busy=f"{output.name}: {busy}", name=f".{output.name}.lock"):
        check_output(run)
        _prepare(run, describe)
        blocks = _on_ray(run, make_worker, ray) if ray else _here(run, make_worker)
        done = []
        for one in tqdm(blocks, total=run.blocks, desc=describe, unit="block", disable=None):
            done.append(one)
            stop_if_asked()
        done.sort(key=lambda one: one.number)
        assert [one.number for one in done] == list(range(run.blocks)), "a block is missing"
        join(run, [one.name for one in done])
    return Counts(run.rows, sum(one.rows for one in done if one.computed))


def rows_left(
    source: Path, output: Path, *, identity: str, adds: pa.Schema, block: int = BLOCK, limit: int | None = None,
    status: str = "",
) -> int:
    """How many rows ``run_blocks`` would work on. Raises BlockError where it would refuse ``output``."""
    run = _run(source, output, identity, adds, block, limit, status)
    check_output(run)
    work = BlockWork(run, _nobody)
    return sum(map(work.left, range(run.blocks)))


def _run(
    source: Path, output: Path, identity: str, adds: pa.Schema, block: int, limit: int | None, status: str,
    data: str = "",
) -> BlockRun:
    with open_table(source) as file:
        total = file.metadata.num_rows
    rows = total if limit is None else min(limit, total)
    return BlockRun(source, output, identity, adds, block, rows, status, data)


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


def _prepare(run: BlockRun, describe: str) -> None:
    others = [path.name for path in run.folder.parent.glob("*") if path.name != run.name]
    if others:
        print(f"{describe}: {run.folder.parent} keeps unfinished parts of other settings ({', '.join(others)}); they "
              "are left alone", file=sys.stderr)
    run.folder.mkdir(parents=True, exist_ok=True)
    remove_drafts(run.folder)
    remove_drafts(run.output.parent)
