"""Result folders of an evaluation, read without touching them.

A folder holds ``run.json`` and one JSON-lines file per length: ``<length>.jsonl`` for the multi-document questions,
``<task>_<length>.jsonl`` for every other task.

Invariants:
- the newest row of a (question, sample) counts; the half line of a run that is still writing is left out;
- a length that the run has claimed but has no rows of yet is a cell with no rows, never a silent gap;
- runs have different labels: the folder's name, with as many parents as it takes to tell them apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from ..system.errors import MemAgentError

METRICS = ("sub_em", "em", "f1", "sub_em_legacy", "ruler")
"""Score keys of a row, in the order in which they are shown."""


class ReportError(MemAgentError):
    """The report cannot be made: a folder is not an evaluation's, or has nothing to show."""


@dataclass(frozen=True, slots=True)
class Row:
    """One answer."""

    question: str
    sample: int
    text: str
    answers: tuple[str, ...]
    prediction: str
    scores: Mapping[str, float]
    failure: str | None
    failure_message: str
    counts: Mapping[str, float]
    memories: tuple[Mapping[str, Any], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Cell:
    """Everything a run has of one task at one length."""

    task: str
    """Empty for the multi-document questions, whose files are named by the length alone."""
    length: str
    data: str | None
    """Hash of the questions' file; cells compare question by question only if it is the same."""
    rows: tuple[Row, ...]

    @property
    def stem(self) -> str:
        return f"{self.task}_{self.length}" if self.task else self.length


@dataclass(frozen=True, slots=True)
class Run:
    label: str
    folder: Path
    model: str
    mode: str
    settings: Mapping[str, Any]
    cells: tuple[Cell, ...]
    written: datetime
    """When its newest row was written."""


def read_runs(folders: Sequence[Path]) -> tuple[Run, ...]:
    """The runs in the order given.

    Raises:
        ReportError: a folder is given twice, is not an evaluation's, has no rows, or has a damaged one.
    """
    resolved = [folder.resolve() for folder in folders]
    twice = [folder for folder, count in Counter(resolved).items() if count > 1]
    if twice:
        raise ReportError(f"{twice[0]} is given {Counter(resolved)[twice[0]]} times; name each result folder once")
    return tuple(_run(folder, label) for folder, label in zip(resolved, _labels(resolved), strict=True))


def length_order(length: str) -> tuple[float, str]:
    """Sorts lengths by number, and names after them."""
    return (float(length), "") if length.isdecimal() else (float("inf"), length)


def _labels(folders: Sequence[Path]) -> list[str]:
    labels = [folder.name for folder in folders]
    for depth in range(2, max((len(folder.parts) for folder in folders), default=0) + 1):
        repeated = {label for label, count in Counter(labels).items() if count > 1}
        labels = [
            "/".join(folder.parts[-depth:]) if label in repeated else label
            for folder, label in zip(folders, labels, strict=True)
        ]
    return labels


def _run(folder: Path, label: str) -> Run:
    path = folder / "run.json"
    if not path.is_file():
        raise ReportError(f"{folder}: no run.json; give folders that an evaluation wrote (its --output)")
    try:
        made_from = orjson.loads(path.read_bytes())
        model, settings, data = made_from["model"], dict(made_from["settings"]), dict(made_from["data"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        raise ReportError(f"{path}: not an evaluation's (no `model`, `settings`, `data`); evaluate again") from None
    files = sorted(folder.glob("*.jsonl"))
    stems = {file.stem for file in files} | set(data)
    cells = [_cell(folder, stem, data.get(stem)) for stem in stems]
    if not any(cell.rows for cell in cells):
        raise ReportError(f"{folder}: no rows yet; run the evaluation first")
    cells.sort(key=lambda cell: (cell.task, length_order(cell.length)))
    written = datetime.fromtimestamp(max(file.stat().st_mtime for file in files), UTC)
    return Run(label, folder, str(model), str(made_from.get("mode", "recurrent")), settings, tuple(cells), written)


def _cell(folder: Path, stem: str, data: str | None) -> Cell:
    task, _, length = stem.rpartition("_")
    return Cell(task, length, data, _rows(folder / f"{stem}.jsonl"))


def _rows(path: Path) -> tuple[Row, ...]:
    if not path.is_file():
        return ()
    content = path.read_bytes()
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    rows = [_row(path, number, line) for number, line in enumerate(lines, start=1)]
    return tuple({(row.question, row.sample): row for row in rows}.values())


def _row(path: Path, number: int, line: bytes) -> Row:
    try:
        row = orjson.loads(line)
        return Row(
            question=str(row["_id"]),
            sample=int(row.get("sample") or 0),
            text=str(row["input"]),
            answers=tuple(map(str, row["answers"])),
            prediction=str(row["pred"] or ""),
            scores={name: float(row[name]) for name in METRICS if name in row},
            failure=row["failure"],
            failure_message=str(row["failure_message"] or ""),
            counts={name: float(count) for name, count in (row["counts"] or {}).items()},
            memories=tuple(row.get("memories") or ()),
            seconds=float(row["seconds"]),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"no `{error.args[0]}`" if isinstance(error, KeyError) else str(error)
        raise ReportError(f"{path}: line {number} is no evaluation row ({reason}); remove it and run again") from None
