"""Result folders: ``OUTPUT/run.json`` says what was asked, ``OUTPUT/<length>.jsonl`` has the answers.

One line is one answer::

    {"_id": "7", "sample": 0, "length": "50", "task": "", "mode": "recurrent", "input": ..., "answers": [...],
     "response": "... \\boxed{Ann}", "pred": "Ann", "em": 1.0, "f1": 1.0, "sub_em": 1.0, "sub_em_legacy": 1.0,
     "outcome": "completed", "failure": null, "failure_message": null, "counts": {"turns": 5, ...},
     "memories": [{"tokens": 41, "gold": false}, ...], "seconds": 3.2}

Rows of RULER tasks have ``ruler`` in place of the four scores, and files named ``<task>_<length>.jsonl``. Scores of
other tasks stand in ``scores``, by name, and ``headline`` says which of all scores the task is judged by.

``Row`` is such a line. Invariants:
- a row is on disk as soon as it is known; the half line that a killed run left is not read, and is cut off before the
  next one is written;
- the newest row of a (question, sample) counts, so a failed one that is asked again is replaced;
- a length without rows yet is a cell without rows, never a silent gap;
- one process at a time writes a folder; reading changes nothing.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ..system.errors import MemAgentError
from ..system.files import append_whole, folder_lock, write_atomically

METRICS = ("sub_em", "em", "f1", "sub_em_legacy", "ruler")
"""Scores that stand in a row itself, in the order in which they are shown."""
_RUN = "run.json"
Row = Mapping[str, Any]


class EvalError(MemAgentError):
    """Evaluation cannot go on: bad data, an endpoint that does not answer, or results of another run in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the rows of a folder were made from, and which there are to be."""

    model: str
    mode: str
    settings: Mapping[str, Any]
    samples: int
    data: Mapping[str, str]
    """The hash of each length's file of questions: rows compare question by question only if it is the same."""
    questions: Mapping[str, int]
    """How many questions each length has."""
    model_name: str = ""
    """The folder or id that was evaluated, as ``model`` is its content's hash."""
    weights: str = ""
    """Of a run in training: which weights its engines had, as they are not those of ``model``."""


class Results(NamedTuple):
    """A folder, read whole."""

    label: str
    folder: Path
    run: Run
    rows: Mapping[str, Sequence[Row]]
    """By file (``50``, ``vt_8192``): by task, and within a task by size."""
    written: datetime
    """When its newest row was written."""


# --- reading ------------------------------------------------------------------------------------------------------


def read_results(folders: Sequence[Path]) -> list[Results]:
    """The folders' results in the order given, each once.

    Raises:
        EvalError: a folder is not an evaluation's, or has no rows.
    """
    resolved = list(dict.fromkeys(folder.resolve() for folder in folders))
    found = []
    for label, folder in zip(labels_of(resolved), resolved, strict=True):
        run = read_run(folder)
        files = sorted(run.data, key=lambda name: (name.rpartition("_")[0], length_order(name.rpartition("_")[2])))
        rows = {name: read_rows(folder, name) for name in files}
        written = [rows_path(folder, name).stat().st_mtime for name in files if rows[name]]
        if not written:
            raise EvalError(f"{folder}: no rows yet; run the evaluation first")
        found.append(Results(label, folder, run, rows, datetime.fromtimestamp(max(written), UTC)))
    return found


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Names of the folders, with as many parents as it takes to tell them apart."""
    named = defaultdict(list)
    for folder in folders:
        named[folder.name].append(folder)
    return [folder.name if named[folder.name] == [folder]
            else os.path.relpath(folder, os.path.commonpath([one.parent for one in named[folder.name]]))
            for folder in folders]


def length_order(length: str) -> tuple[float, str]:
    """Sorts lengths by number, 4k and 1m being thousands and millions, and names after them."""
    found = re.fullmatch(r"(\d+)([km]?)", length)
    return (int(found[1]) * {"": 1, "k": 1e3, "m": 1e6}[found[2]], "") if found else (float("inf"), length)


def task_and_length(file: str) -> tuple[str, str]:
    """The task is empty for the multi-document questions, whose files are named by the length alone; of a file that is
    named by neither length nor task and length (``gsm8k``) it is the name."""
    task, _, length = file.rpartition("_")
    return task if task or file.isdecimal() else file, length


def has_run(output: Path) -> bool:
    return (output / _RUN).is_file()


def read_run(output: Path) -> Run:
    """``run.json``. Raises EvalError where the folder has none."""
    if not has_run(output):
        raise EvalError(f"{output}: no results; give the folder of an evaluation")
    return Run(**orjson.loads((output / _RUN).read_bytes()))


def rows_path(output: Path, length: str) -> Path:
    return output / f"{length}.jsonl"


def read_rows(output: Path, length: str) -> list[Row]:
    """The newest row of each (question, sample)."""
    path = rows_path(output, length)
    whole = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    return list({(row["_id"], row["sample"]): row for row in map(orjson.loads, whole)}.values())


def scores_of(row: Row) -> dict[str, float]:
    return {name: row[name] for name in METRICS if name in row} | row.get("scores", {})


# --- writing ------------------------------------------------------------------------------------------------------


@contextmanager
def lock_results(output: Path) -> Iterator[None]:
    """Make ``output`` and be its only writer. Raises MemAgentError where another evaluation is."""
    busy = "another evaluation is writing there; wait for it, or set another SAVE_FILE"
    with folder_lock(output, busy=busy):
        for path in output.glob("*.jsonl"):
            cut_half_line(path)
        yield


def joined_run(output: Path, run: Run) -> Run:
    """With the lengths and samples that ``output`` has already. Raises EvalError where it holds rows of something
    else."""
    if not has_run(output):
        return run
    known = read_run(output)
    found = [f"{name.upper()} was {known.settings.get(name)!r}, is {value!r}"[:80]
             for name, value in run.settings.items() if known.settings.get(name) != value]
    found += ["another model"] * ((known.model, known.weights) != (run.model, run.weights))
    found += [f"another eval_{length}.json" for length, digest in run.data.items()
              if known.data.get(length, digest) != digest]
    if found:
        raise EvalError(f"{output} holds other results ({'; '.join(found[-3:])}); set another SAVE_FILE (of a "
                        "training run: SAVE_PATH), or remove it")
    return replace(run, samples=max(known.samples, run.samples), data={**known.data, **run.data},
                   questions={**known.questions, **run.questions})


def write_run(output: Path, run: Run) -> None:
    write_atomically(output / _RUN, orjson.dumps(asdict(run), option=orjson.OPT_INDENT_2))


def write_row(output: Path, row: Row) -> None:
    """Append it to its length's file; inside ``lock_results``."""
    with rows_path(output, row["length"]).open("ab", buffering=0) as file:
        append_whole(file, orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def cut_half_line(path: Path) -> None:
    """Cut off what stands behind the last line end of a file that may be there."""
    if path.is_file():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
