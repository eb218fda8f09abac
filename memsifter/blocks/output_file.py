"""The finished file of a run, and its parts until then.

A part has the added columns of a block, the output all columns, a row group for each part. Metadata of their schemas
tell what they are::

    mem_agent.run     the run that they belong to       mem_agent.parts    names of the parts, in order (output)
    mem_agent.about   its identity, to be read          mem_agent.rows     digests of the rows, by part; where a run
    mem_agent.data    data set and split: locomo/test                      has a status

Invariants: each is whole or absent, and replaced by one rename; what the output has, and is not asked for today, is
kept as a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ...system.files import replacing
from .block_reader import BlockReader, open_table, read_table
from .block_run import KEY_LENGTH, BlockError, BlockRun

_RUN, _PARTS, _ABOUT, _DATA = b"mem_agent.run", b"mem_agent.parts", b"mem_agent.about", b"mem_agent.data"
_ROWS = b"mem_agent.rows"


def check_output(run: BlockRun) -> None:
    """Raises BlockError where ``output`` is there and is not this run's."""
    if not run.output.exists():
        return
    if _said(run.output, _RUN) != run.name:
        about = identity_of(run.output) or "something else"
        raise BlockError(f"{run.output}: was made with other settings ({about:.200}), not {run.identity:.200}; move "
                         "it away, or choose another output")


def identity_of(output: Path) -> str:
    """Of the run that wrote a file; empty where none did."""
    return _said(output, _ABOUT)


def data_of(output: Path) -> str:
    """The data set and split that a file says it is of; empty where it does not."""
    return _said(output, _DATA)


def finished_parts(run: BlockRun) -> dict[str, int]:
    """Names of the parts that the output has, and the row group of each."""
    if not run.output.exists():
        return {}
    names = _said(run.output, _PARTS).split()
    return {name: group for group, name in enumerate(names)}


def finished_rows(run: BlockRun, group: int, columns: Sequence[str] | None = None) -> pa.Table:
    """What the stage has added to the rows of a row group of the output."""
    return read_table(run.output, columns or run.adds.names, group)


def row_keys(file: Path) -> list[list[str]]:
    """By part, the keys of the rows that a part or an output has; none where it does not say."""
    return [[part[at:at + KEY_LENGTH] for at in range(0, len(part), KEY_LENGTH)]
            for part in _said(file, _ROWS).split()]


def write_part(path: Path, table: pa.Table, keys: Sequence[str] = ()) -> None:
    with replacing(path) as file:
        own = {_ROWS: "".join(keys).encode()} if keys else None
        pq.write_table(table.replace_schema_metadata(own), file, compression="zstd")


def join(run: BlockRun, names: Sequence[str]) -> None:
    """The input's columns and the parts beside them, as the output; then the parts are gone."""
    finished = {name: group for name, group in finished_parts(run).items() if not run.part(name).exists()}
    if not run.output.exists() or list(finished) != list(names):
        held = row_keys(run.output) if finished else []
        known = {name: held[group] for name, group in finished.items() if held}
        for name in finished.keys() - set(names):
            write_part(run.part(name), finished_rows(run, finished[name]), known.get(name, ()))
        reader = BlockReader(run.source, run.block, run.rows)
        keys = [known[name] if name in known else _keys_of_part(run, name) for name in names] if run.status else []
        with replacing(run.output) as file, _writer(run, file, names, keys) as writer:
            for number, name in enumerate(names):
                added = finished_rows(run, finished[name]) if name in finished else read_table(run.part(name))
                table = _beside(reader.table(number), added.cast(run.adds))
                writer.write_table(table.cast(writer.schema), row_group_size=max(1, len(table)))
    _remove_parts(run, set(names))


def _keys_of_part(run: BlockRun, name: str) -> list[str]:
    return next(iter(row_keys(run.part(name))), [])


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


def _writer(run: BlockRun, file: BinaryIO, names: Sequence[str], keys: Sequence[Sequence[str]]) -> pq.ParquetWriter:
    own = [field for field in open_table(run.source).schema_arrow if field.name not in run.adds.names]
    about = {_RUN: run.name, _PARTS: " ".join(names), _ABOUT: run.identity, _DATA: run.data,
             _ROWS: " ".join(map("".join, keys)) if all(keys) else ""}
    schema = pa.schema([*own, *run.adds], metadata={name: value.encode() for name, value in about.items()})
    return pq.ParquetWriter(file, schema, compression="zstd")


def _said(file: Path, name: bytes) -> str:
    return (open_table(file).schema_arrow.metadata or {}).get(name, b"").decode("utf-8", "replace")
