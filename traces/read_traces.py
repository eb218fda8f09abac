"""Reads the traces of a training run or of an evaluation, wherever a user points: ``RUN`` or ``RESULTS``.

::

    RUN/trajectories/rollout_000012.jsonl
    RESULTS/trajectories/50.jsonl
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from .trace import Trace, TraceDocument, TraceError, record_of

FOLDER = "trajectories"
_END = 2**16
"""Bytes of a file by which it is told from others."""


def kept_files(folder: Path) -> list[Path]:
    """In the order of their names. A FIFO is none, which whoever opened it would wait at for ever, nor is a device."""
    return sorted(path for path in (folder / FOLDER).glob("*.jsonl") if path.is_file())


def fingerprint(folder: Path) -> str:
    """Of the folder's files as they are now, wherever the folder lies: they grow at their ends, which are all that is
    read of them."""
    found = sha256()
    for path in kept_files(folder):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END))
            found.update(repr((path.name, size)).encode() + sha256(file.read(_END)).digest())
    return found.hexdigest()


def trace_files(folder: Path) -> list[Path]:
    """Those that are kept. Raises TraceError where there is none."""
    files = kept_files(folder)
    if not files:
        raise TraceError(f"{folder}: no {FOLDER}/*.jsonl; give the folder of a run (SAVE_PATH) or of an evaluation "
                         "that was made with KEEP_TRAJECTORIES above 0")
    return files


def read_traces(file: Path) -> Iterator[TraceDocument | Trace]:
    """The file's records, one in memory at a time. Raises TraceError where a whole line is none."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield record_of(line)
            except ValueError as error:
                raise TraceError(f"{file}: line {number} is no trace ({error}); remove that line") from None
