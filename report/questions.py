"""Every question with what each run answered: a table that the page filters, and ``questions.csv`` with all of it.

Invariants:
- a row is one question of one file of questions; runs stand in one row only where that file is the same;
- a page holds about ``MOST`` answers, the first questions of every file with all their answers; it says so, and the
  CSV has the rest, with every text as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from ..evaluation.results import Cell, Results
from ..evaluation.summary import main_metric, shared_metrics
from ..traces.trace import kept_files
from .data import task_name
from .tables import metric_name

MOST = 20_000
_TEXT, _ANSWER = 400, 200
_COLUMNS = ("file", "task", "question_id", "question", "accepted", "run", "sample", "metric", "percent", "prediction",
            "failure")
_QUESTION = ["file", "data", "question_id"]


def answers_of(runs: Sequence[Results]) -> pd.DataFrame:
    """One line for each answer, question by question as they were first answered, judged by its task's metric."""
    cells: dict[tuple[str, str], list[tuple[int, Cell]]] = defaultdict(list)
    for number, run in enumerate(runs):
        for cell in run.cells:
            cells[cell.name, cell.data].append((number, cell))
    lines = []
    for (file, data), found in cells.items():
        metric = main_metric(shared_metrics([row for _, cell in found for row in cell.rows]))
        lines += [
            (file, task_name(cell.task), row.question, row.text, " | ".join(row.answers), runs[number].label,
             row.sample, metric, 100 * row.scores[metric], row.prediction, row.failure or "", data, number,
             row.failure_message or "")
            for number, cell in found if metric for row in cell.rows
        ]
    frame = pd.DataFrame(lines, columns=[*_COLUMNS, "data", "number", "message"])
    asked = frame.groupby(_QUESTION, sort=False).ngroup()
    return frame.assign(asked=asked).sort_values(["asked", "number", "sample"], kind="stable")


def questions_csv(answers: pd.DataFrame) -> str:
    """In full."""
    return answers[list(_COLUMNS)].to_csv(index=False, lineterminator="\n")


def questions_json(
    answers: pd.DataFrame, runs: Sequence[Results], viewers: Mapping[Path, str]
) -> tuple[str, int]:
    """What the page filters, as text for a script element, and how many questions it lacks; ``viewers`` by folder."""
    files: dict[tuple[str, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in answers.itertuples():
        row = files[line.file, line.data].setdefault(line.question_id, {
            "file": line.file, "id": line.question_id, "text": _short(line.question, _TEXT),
            "golds": _short(line.accepted, _TEXT), "answers": defaultdict(list)})
        failure = f"{line.failure}: {_short(line.message, _ANSWER)}" if line.failure else ""
        row["answers"][str(line.number)].append({"sample": line.sample, "score": round(line.percent, 1),
                                                 "given": _short(line.prediction, _ANSWER), "failure": failure})
    share = min(1.0, MOST / max(1, len(answers)))
    shown = [row for rows in files.values() for row in list(rows.values())[: max(1, int(share * len(rows)))]]
    data = {
        "runs": [{"label": run.label, "viewer": viewers.get(run.folder, ""),
                  "kept": [path.stem for path in kept_files(run.folder)]} for run in runs],
        "metrics": {name: metric_name(name) for name in answers["metric"].unique()},
        "rows": shown,
    }
    return orjson.dumps(data).decode().replace("<", "\\u003c"), sum(map(len, files.values())) - len(shown)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
