"""Reads the traces of a training run or of an evaluation, wherever a user points: ``RUN`` or ``RESULTS``.

::

    RUN/trajectories/rollout_000012.jsonl
    RESULTS/trajectories/50.jsonl
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .trace import Trace, TraceDocument, TraceError, record_of

FOLDER = "trajectories"


def kept_files(folder: Path) -> list[Path]:
    """In the order of their names."""
    return sorted(path for path in (folder / FOLDER).glob("*.jsonl") if path.is_file())


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
