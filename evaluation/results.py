"""Result folders: ``OUTPUT/run.json`` says what was asked, ``OUTPUT/<length>.jsonl`` has the answers.

One line is one answer::

    {"_id": "7", "sample": 0, "length": "50", "task": "", "mode": "recurrent", "input": ..., "answers": [...],
     "response": "... \\boxed{Ann}", "pred": "Ann", "em": 1.0, "f1": 1.0, "sub_em": 1.0, "sub_em_legacy": 1.0,
     "outcome": "completed", "failure": null, "failure_message": null, "counts": {"turns": 5, ...},
     "memories": [{"tokens": 41, "gold": false}, ...], "seconds": 3.2}

Rows of RULER tasks have ``ruler`` in place of the four scores, and files named ``<task>_<length>.jsonl``. Scores of
other tasks stand in ``scores``, by name, and ``headline`` says which of all scores the task is judged by.

Invariants:
- a row is on disk as soon as it is known; the half line that a killed run left is not read, and is cut off before the
  next one is written;
- the newest row of a (question, sample) counts, so a failed one that is asked again is replaced;
- a length without rows yet is a cell without rows, never a silent gap;
- one process at a time writes a folder; reading changes nothing.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import IO, Any

import orjson

from ..system.files import append_whole, folder_lock, write_atomically
from .questions import EvalError

METRICS = ("sub_em", "em", "f1", "sub_em_legacy", "ruler")
"""Score keys of a row, in the order in which they are shown."""
_RUN, _LOCK = "run.json", ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One answer."""

    question: str
    sample: int
    length: str
    task: str
    mode: str
    text: str
    answers: tuple[str, ...]
    response: str
    prediction: str
    scores: Mapping[str, float]
    headline: str = ""
    """The score that the row's task is judged by; empty in folders that do not say, where METRICS decides."""
    outcome: str
    failure: str | None
    failure_message: str | None
    counts: Mapping[str, float]
    memory_tokens: tuple[int, ...]
    """Of the memory after each turn."""
    memory_gold: tuple[bool | None, ...]
    """Whether an accepted answer stands in that memory; None where that tells nothing."""
    seconds: float


_SAME = ("question", "sample", "length", "task", "mode", "text", "answers", "response", "prediction", "outcome",
         "failure", "failure_message", "counts", "seconds")
_ON_DISK = {"question": "_id", "text": "input", "prediction": "pred"}
"""Fields of a row that a line has as they are, and those that are called otherwise there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the rows of a folder were made from, and which there are to be."""

    model: str
    mode: str
    settings: Mapping[str, Any]
    samples: int
    data: Mapping[str, str]
    """The hash of each length's file of questions."""
    questions: Mapping[str, int]
    """How many questions each length has."""
    model_name: str = ""
    """The folder or id that was evaluated, as ``model`` is its content's hash."""
    weights: str = ""
    """Of a run in training: which weights its engines had, as they are not those of ``model``."""

    @property
    def checkpoint(self) -> int | None:
        """The rollout after which the evaluated checkpoint was written, where its folder's name says so."""
        found = re.fullmatch(r"iter_([0-9]{7,18})", PurePath(self.model_name).name)
        return int(found[1]) if found else None

    @property
    def lengths(self) -> list[str]:
        """By task, and within a task by size."""
        return sorted(self.data, key=lambda name: (name.rpartition("_")[0], length_order(name.rpartition("_")[2])))


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything a run has of one task at one length."""

    name: str
    """What its files are called: ``50``, ``vt_8192``."""
    data: str
    """The hash of its questions: cells compare question by question only if it is the same."""
    questions: int
    samples: int
    rows: tuple[Row, ...]

    @property
    def task(self) -> str:
        """Empty for the multi-document questions, whose files are named by the length alone; of a file that is named
        by neither length nor task and length (``gsm8k``) its name."""
        task = self.name.rpartition("_")[0]
        return task if task or self.name.isdecimal() else self.name

    @property
    def length(self) -> str:
        return self.name.rpartition("_")[2]

    @property
    def missing(self) -> int:
        """The answers that the run is to have and has no row of."""
        return max(0, self.questions * self.samples - len(self.rows))


@dataclass(frozen=True, slots=True)
class Results:
    """A folder, read whole."""

    label: str
    folder: Path
    run: Run
    cells: tuple[Cell, ...]
    written: datetime
    """When its newest row was written."""


# --- reading ------------------------------------------------------------------------------------------------------


def read_results(folders: Sequence[Path]) -> tuple[Results, ...]:
    """The folders' results in the order given.

    Raises:
        EvalError: a folder is given twice, is not an evaluation's, has no rows, or has a damaged one.
    """
    resolved = [folder.resolve() for folder in folders]
    for folder, count in Counter(resolved).items():
        if count > 1:
            raise EvalError(f"{folder} is given {count} times; name each result folder once")
    return tuple(_results(label, folder) for label, folder in zip(labels_of(resolved), resolved, strict=True))


def _results(label: str, folder: Path) -> Results:
    run = read_run(folder)
    cells = tuple(read_cell(folder, run, name) for name in run.lengths)
    if not any(cell.rows for cell in cells):
        raise EvalError(f"{folder}: no rows yet; run the evaluation first")
    newest = max(rows_path(folder, cell.name).stat().st_mtime for cell in cells if cell.rows)
    return Results(label, folder, run, cells, datetime.fromtimestamp(newest, UTC))


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Names of the folders, with as many parents as it takes to tell them apart."""
    labels = [folder.name for folder in folders]
    for depth in range(2, max((len(folder.parts) for folder in folders), default=0) + 1):
        repeated = {label for label, count in Counter(labels).items() if count > 1}
        labels = [
            "/".join(folder.parts[-depth:]) if label in repeated else label
            for folder, label in zip(folders, labels, strict=True)
        ]
    return labels


def length_order(length: str) -> tuple[float, str]:
    """Sorts lengths by number, and names after them."""
    return (float(length), "") if length.isdecimal() else (float("inf"), length)


def has_run(output: Path) -> bool:
    return (output / _RUN).is_file()


def read_run(output: Path) -> Run:
    """``run.json``. Raises EvalError where the folder has none, or a damaged one."""
    if not has_run(output):
        raise EvalError(f"{output}: no results; give the folder of an evaluation")
    path = output / _RUN
    try:
        return Run(**orjson.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise EvalError(f"{path}: damaged ({error}); remove {output} and evaluate again") from None


def read_cell(output: Path, run: Run, name: str) -> Cell:
    """What the run has of one length."""
    return Cell(name, run.data[name], run.questions[name], run.samples, tuple(read_rows(output, name)))


def rows_path(output: Path, length: str) -> Path:
    return output / f"{length}.jsonl"


def read_rows(output: Path, length: str) -> list[Row]:
    """The newest row of each (question, sample).

    Raises:
        EvalError: a whole line is no row.
    """
    path = rows_path(output, length)
    if not path.is_file():
        return []
    newest: dict[tuple[str, int], Row] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                row = _row(orjson.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                what = f"line {number} is no row of an evaluation ({type(error).__name__}: {error})"
                raise EvalError(f"{path}: {what}; remove that line and run again") from None
            newest[row.question, row.sample] = row
    return list(newest.values())


def answered(rows: Sequence[Row]) -> set[tuple[str, int]]:
    """The (question, sample) pairs that need not be asked again."""
    return {(row.question, row.sample) for row in rows if row.failure is None}


def _row(line: dict[str, Any]) -> Row:
    known = {name: line[_ON_DISK.get(name, name)] for name in _SAME}
    memories = line["memories"]
    return Row(
        **known | {"answers": tuple(line["answers"])}, headline=line.get("headline", ""),
        scores={name: line[name] for name in METRICS if name in line} | line.get("scores", {}),
        memory_tokens=tuple([memory["tokens"] for memory in memories]),
        memory_gold=tuple([memory["gold"] for memory in memories]),
    )


# --- writing ------------------------------------------------------------------------------------------------------


@contextmanager
def lock_results(output: Path) -> Iterator[None]:
    """Make ``output`` and be its only writer. Raises MemAgentError where another evaluation is."""
    busy = "another evaluation is writing there; wait for it, or set another SAVE_FILE"
    with folder_lock(output, busy=busy, name=_LOCK):
        yield


def write_run(output: Path, run: Run) -> None:
    write_atomically(output / _RUN, orjson.dumps(asdict(run), option=orjson.OPT_INDENT_2))


class RowWriter:
    """Appends rows to the files of ``output``; a context manager."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._files: dict[str, IO[bytes]] = {}

    def write(self, row: Row) -> None:
        file = self._files.get(row.length)
        if file is None:
            path = rows_path(self._output, row.length)
            cut_half_line(path)
            file = self._files[row.length] = path.open("ab", buffering=0)
        append_whole(file, _line(row))

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()


def _line(row: Row) -> bytes:
    line = {_ON_DISK.get(name, name): getattr(row, name) for name in _SAME}
    line |= {name: score for name, score in row.scores.items() if name in METRICS}
    line |= {"headline": row.headline} if row.headline else {}
    memories = zip(row.memory_tokens, row.memory_gold, strict=True)
    line["memories"] = [{"tokens": tokens, "gold": gold} for tokens, gold in memories]
    if own := {name: score for name, score in row.scores.items() if name not in METRICS}:
        line["scores"] = own
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def cut_half_line(path: Path) -> None:
    """Cut off what stands behind the last line end."""
    if path.is_file():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
