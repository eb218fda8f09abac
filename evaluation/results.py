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
from typing import Any

import orjson

from ..system.files import append_whole, folder_lock, write_atomically
from .questions import EvalError

METRICS = ("sub_em", "em", "f1", "sub_em_legacy", "ruler")
"""Score keys of a row, in the order in which they are shown."""
_RUN = "run.json"
_FIELDS = {"_id": "question", "input": "text", "pred": "prediction"}
"""What a row calls otherwise than its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One answer."""

    question: str
    sample: int
    length: str
    task: str
    mode: str
    text: str
    answers: Sequence[str]
    response: str
    prediction: str
    scores: Mapping[str, float]
    headline: str = ""
    """The score that the row's task is judged by; empty where METRICS decides."""
    outcome: str
    failure: str | None
    failure_message: str | None
    counts: Mapping[str, float]
    memories: Sequence[Mapping[str, Any]]
    """Of each turn: ``tokens``, and whether an accepted answer stands in it (``gold``; None where that tells
    nothing)."""
    seconds: float


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
    rows: Sequence[Row]

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
    """The folders' results in the order given, each once.

    Raises:
        EvalError: a folder is not an evaluation's, has no rows, or has a damaged one.
    """
    resolved = list(dict.fromkeys(folder.resolve() for folder in folders))
    found = []
    for label, folder in zip(labels_of(resolved), resolved, strict=True):
        run = read_run(folder)
        cells = tuple(read_cell(folder, run, name) for name in run.lengths)
        written = [rows_path(folder, cell.name).stat().st_mtime for cell in cells if cell.rows]
        if not written:
            raise EvalError(f"{folder}: no rows yet; run the evaluation first")
        found.append(Results(label, folder, run, cells, datetime.fromtimestamp(max(written), UTC)))
    return tuple(found)


def labels_of(folders: Sequence[Path]) -> list[str]:
    """Names of the folders, with as many parents as it takes to tell them apart."""
    labels = [folder.name for folder in folders]
    for depth in range(2, max((len(folder.parts) for folder in folders), default=0) + 1):
        count = Counter(labels)
        labels = ["/".join(folder.parts[-depth:]) if count[label] > 1 else label
                  for folder, label in zip(folders, labels, strict=True)]
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
    try:
        return Run(**orjson.loads((output / _RUN).read_bytes()))
    except (ValueError, TypeError) as error:
        raise EvalError(f"{output / _RUN}: damaged ({error}); remove {output} and evaluate again") from None


def read_cell(output: Path, run: Run, name: str) -> Cell:
    """What the run has of one length."""
    return Cell(name, run.data[name], run.questions[name], run.samples, read_rows(output, name))


def rows_path(output: Path, length: str) -> Path:
    return output / f"{length}.jsonl"


def read_rows(output: Path, length: str) -> list[Row]:
    """The newest row of each (question, sample). Raises EvalError where a whole line is no row."""
    path, newest = rows_path(output, length), dict[tuple[str, int], Row]()
    whole = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    for number, line in enumerate(whole, start=1):
        try:
            fields = {_FIELDS.get(name, name): value for name, value in orjson.loads(line).items()}
            scores = {name: fields.pop(name) for name in METRICS if name in fields} | fields.pop("scores", {})
            row = Row(scores=scores, **fields)
        except (ValueError, TypeError, AttributeError) as error:
            raise EvalError(f"{path}: line {number} is no row of an evaluation ({error}); remove it") from None
        newest[row.question, row.sample] = row
    return list(newest.values())


# --- writing ------------------------------------------------------------------------------------------------------


@contextmanager
def lock_results(output: Path) -> Iterator[None]:
    """Make ``output`` and be its only writer. Raises MemAgentError where another evaluation is."""
    busy = "another evaluation is writing there; wait for it, or set another SAVE_FILE"
    with folder_lock(output, busy=busy):
        for path in output.glob("*.jsonl"):
            cut_half_line(path)
        yield


def write_run(output: Path, run: Run) -> None:
    write_atomically(output / _RUN, orjson.dumps(asdict(run), option=orjson.OPT_INDENT_2))


def write_row(output: Path, row: Row) -> None:
    """Append it to its length's file; inside ``lock_results``."""
    names = {name: on_disk for on_disk, name in _FIELDS.items()}
    line = {names.get(name, name): value for name, value in asdict(row).items() if name != "scores"}
    own = {name: score for name, score in row.scores.items() if name not in METRICS}
    line |= {name: row.scores[name] for name in METRICS if name in row.scores} | ({"scores": own} if own else {})
    with rows_path(output, row.length).open("ab", buffering=0) as file:
        append_whole(file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def cut_half_line(path: Path) -> None:
    """Cut off what stands behind the last line end of a file that may be there."""
    if path.is_file():
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
