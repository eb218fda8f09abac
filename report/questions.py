"""Every question with what each run answered: a table that the page filters, and ``questions.csv``.

A row is one question of one file of questions; runs stand in one row only where that file is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from ..evaluation.results import Results, Row
from ..evaluation.summary import main_metric, shared_metrics
from ..hooks.traces import kept_files
from .data import task_name

_COLUMNS = ("file", "task", "question_id", "question", "accepted", "run", "sample", "metric", "percent", "prediction",
            "failure")
_TEXT, _ANSWER = 400, 200


def answers_of(runs: Sequence[Results]) -> pd.DataFrame:
    """One line for each answer, question by question as they were first answered, judged by its task's metric."""
    files: dict[tuple[str, str], list[tuple[int, Row]]] = defaultdict(list)
    for number, run in enumerate(runs):
        for cell in run.cells:
            files[cell.name, cell.data] += [(number, row) for row in cell.rows]
    lines = []
    for (file, data), found in files.items():
        metric = main_metric(shared_metrics([row for _, row in found]))
        lines += [
            (file, task_name(row.task), row.question, row.text, " | ".join(row.answers), runs[number].label,
             row.sample, metric, 100 * row.scores[metric], row.prediction, row.failure or "", data, number,
             row.failure_message or "")
            for number, row in found if metric
        ]
    frame = pd.DataFrame(lines, columns=[*_COLUMNS, "data", "number", "message"])
    asked = frame.groupby(["file", "data", "question_id"], sort=False).ngroup()
    return frame.assign(asked=asked).sort_values(["asked", "number", "sample"], kind="stable")


def questions_csv(answers: pd.DataFrame) -> str:
    """In full."""
    return answers[list(_COLUMNS)].to_csv(index=False, lineterminator="\n")


def questions_json(answers: pd.DataFrame, runs: Sequence[Results], viewers: Mapping[Path, str]) -> str:
    """What the page filters, as text for a script element; ``viewers`` by folder."""
    rows: dict[int, dict[str, Any]] = {}
    for line in answers.itertuples():
        row = rows.setdefault(line.asked, {
            "file": line.file, "id": line.question_id, "text": _short(line.question, _TEXT),
            "golds": _short(line.accepted, _TEXT), "answers": defaultdict(list)})
        failure = f"{line.failure}: {_short(line.message, _ANSWER)}" if line.failure else ""
        row["answers"][str(line.number)].append({"sample": line.sample, "score": round(line.percent, 1),
                                                 "given": _short(line.prediction, _ANSWER), "failure": failure})
    data = {
        "runs": [{"label": run.label, "viewer": viewers.get(run.folder, ""),
                  "kept": [path.stem for path in kept_files(run.folder)]} for run in runs],
        "rows": list(rows.values()),
    }
    return orjson.dumps(data).decode().replace("<", "\\u003c")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
