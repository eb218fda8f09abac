"""Rows on disk: ``OUTPUT/run.json`` says what they were made from, ``OUTPUT/<length>.jsonl`` has one line per answer.

    {"_id": "7", "sample": 0, "length": "50", "task": "", "mode": "recurrent", "input": ..., "answers": [...],
     "response": "... \\boxed{Ann}", "pred": "Ann", "em": 1.0, "f1": 1.0, "sub_em": 1.0, "sub_em_legacy": 1.0,
     "outcome": "completed", "failure": null, "failure_message": null, "counts": {"turns": 5, ...},
     "memories": [{"tokens": 41, "gold": false}, ...], "seconds": 3.2, "turns": [...] with EVAL_TRACE=1}

Rows of RULER tasks have ``ruler`` in place of the four scores.

Invariants:
- a row is on disk as soon as it is known; what a killed run left of a line is cut off before the next one is written;
- one process at a time writes a folder;
- the newest row of a (question, sample) counts, so a failed one that is asked again is replaced;
- rows made from other data, another model or other settings are never mixed in: ``claim`` refuses, and says what
  differs. More lengths and more samples of the same join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import orjson

from ..system.atomic_file import write_atomically
from ..system.file_lock import hold_folder
from .questions import EvalError

RUN, _LOCK = "run.json", ".lock"
Row = dict[str, Any]


def model_hash(model: Path) -> str:
    """Of names, sizes and heads of the weight files: enough to tell checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin")):
        with path.open("rb") as file:
            size = path.stat().st_size
            for position in (0, max(0, size // 2), max(0, size - 2**20)):
                file.seek(position)
                digest.update(file.read(2**20))
        digest.update(f"{path.name} {size}".encode())
    return digest.hexdigest()[:16]


def read_run(output: Path) -> dict[str, Any]:
    """``run.json``. Raises EvalError where the folder has none."""
    path = output / RUN
    if not path.is_file():
        raise EvalError(f"{output}: no results; give the folder of an evaluation")
    try:
        run = orjson.loads(path.read_bytes())
        assert isinstance(run["data"], dict)
        return run
    except (orjson.JSONDecodeError, KeyError, TypeError, AssertionError):
        raise EvalError(f"{path}: damaged; remove {output} and evaluate again") from None


@contextmanager
def hold(output: Path) -> Iterator[None]:
    """Be the only one who writes ``output``, which is made. Raises EvalError where that cannot be."""
    busy = "another evaluation is writing there; wait for it, or set another SAVE_FILE"
    with hold_folder(output, _LOCK, EvalError, busy=busy, other="set RESULTS to another folder"):
        yield


def claim(output: Path, provenance: Mapping[str, Any]) -> None:
    """Make ``output`` this run's, or refuse if its rows were made from something else."""
    merged = dict(provenance)
    if (output / RUN).is_file():
        known = read_run(output)
        for what in ("model", "settings"):
            if known.get(what) != provenance[what]:
                raise EvalError(_mismatch(output, what, known.get(what), provenance[what]))
        for length, digest in provenance["data"].items():
            if known["data"].get(length, digest) != digest:
                raise EvalError(f"{output}/{length}.jsonl is of another eval_{length}.json; set another SAVE_FILE")
        merged |= {name: known.get(name, {}) | provenance[name] for name in ("data", "questions")}
        merged["samples"] = max(known.get("samples", 1), provenance["samples"])
    write_atomically(output / RUN, orjson.dumps(merged, option=orjson.OPT_INDENT_2))


def _mismatch(output: Path, what: str, known: Any, wanted: Any) -> str:
    differs = ""
    if isinstance(known, dict) and isinstance(wanted, dict):
        names = sorted(n for n in known.keys() | wanted.keys() if known.get(n) != wanted.get(n))
        shown = [f"{n.upper()} was {known.get(n)!r}, is {wanted.get(n)!r}"[:80] for n in names[:3]]
        differs = f" ({'; '.join(shown)})"
    return f"{output} holds results of another {what}{differs}; set another SAVE_FILE or remove it"


# --- rows ---------------------------------------------------------------------------------------------------------


def rows_path(output: Path, length: str) -> Path:
    return output / f"{length}.jsonl"


def read_rows(output: Path, length: str) -> list[Row]:
    """The newest row of each (question, sample), without its turns; lines that are not whole are left out."""
    path = rows_path(output, length)
    if not path.is_file():
        return []
    newest: dict[tuple[str, int], Row] = {}
    with path.open("rb") as lines:
        for row in _whole(lines):
            row.pop("turns", None)
            newest[row["_id"], row.get("sample", 0)] = row
    return list(newest.values())


def _whole(lines: BinaryIO) -> Iterator[Row]:
    for line in lines:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, dict) and "_id" in row:
            yield row


class RowWriter:
    """Appends rows to the files of ``output``; a context manager."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._files: dict[str, BinaryIO] = {}

    def write(self, row: Row) -> None:
        file = self._files.get(row["length"])
        if file is None:
            path = rows_path(self._output, row["length"])
            cut_half_line(path)
            file = self._files[row["length"]] = path.open("ab", buffering=0)
        line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        written = file.write(line)
        if written != len(line):
            raise EvalError(f"{file.name}: the disk is full; make room, then the same command continues")

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()


def cut_half_line(path: Path, block: int = 2**20) -> None:
    """Take off what stands behind the last line end."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        end = file.seek(0, 2)
        while end:
            start = max(0, end - block)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)


def answered(rows: Sequence[Row]) -> set[tuple[str, int]]:
    """The (question, sample) pairs that need not be asked again."""
    return {(row["_id"], row.get("sample", 0)) for row in rows if not row["failure"]}
