"""Every question with what each run answered: a table that the page filters, and ``questions.csv`` with all of it.

Invariants:
- a row is one question of one file of questions; runs stand in one row only where that file is the same;
- a page holds at most ``MOST`` answers, the first questions of every file with all their answers, as its means are of
  all of them; it says so, and the CSV has the rest;
- a link goes into the page of trajectories only where that page was made and the file's trajectories were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from ..evaluation.results import Results, Row
from ..evaluation.summary import main_metric, shared_metrics
from .tables import csv_text
from .viewer_pages import files_kept
from .wording import metric_name, task_name

MOST = 20_000
_TEXT, _ANSWER = 400, 200


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question, with the answers of the runs that have one, by the run's number."""

    cell: str
    task: str
    metric: str
    id: str
    text: str
    golds: tuple[str, ...]
    answers: Mapping[int, tuple[Row, ...]]

    def score(self, run: int) -> float | None:
        """Percent, the samples averaged."""
        rows = self.answers.get(run, ())
        return 100 * sum(row.scores[self.metric] for row in rows) / len(rows) if rows else None


def question_rows(runs: Sequence[Results]) -> list[QuestionRow]:
    """In the order of files, and of questions as they were first answered."""
    found: dict[tuple[str, str], dict[str, dict[int, list[Row]]]] = {}
    for number, run in enumerate(runs):
        for cell in run.cells:
            questions = found.setdefault((cell.name, cell.data), {})
            for row in cell.rows:
                questions.setdefault(row.question, {}).setdefault(number, []).append(row)
    tasks = {cell.name: cell.task for run in runs for cell in run.cells}
    rows = []
    for (name, _), questions in found.items():
        every = [row for by_run in questions.values() for each in by_run.values() for row in each]
        metric = main_metric(shared_metrics(every))
        for question, by_run in questions.items() if metric else ():
            first = next(iter(by_run.values()))[0]
            answers = {run: tuple(sorted(each, key=lambda row: row.sample)) for run, each in by_run.items()}
            rows.append(QuestionRow(name, tasks[name], metric or "", question, first.text, first.answers, answers))
    return rows


def questions_csv(rows: Sequence[QuestionRow], runs: Sequence[Results]) -> str:
    """One line for each answer, in full."""
    header = ("file", "task", "question_id", "question", "accepted", "run", "sample", "metric", "percent",
              "prediction", "failure")
    return csv_text(header, (
        {"file": row.cell, "task": task_name(row.task), "question_id": row.id, "question": row.text,
         "accepted": " | ".join(row.golds), "run": runs[number].label, "sample": each.sample, "metric": row.metric,
         "percent": 100 * each.scores[row.metric], "prediction": each.prediction, "failure": each.failure or ""}
        for row in rows for number, answers in row.answers.items() for each in answers
    ))


def questions_json(
    rows: Sequence[QuestionRow], runs: Sequence[Results], viewers: Mapping[Path, str]
) -> tuple[str, int]:
    """What the page filters, as text for a script element, and how many rows it has; ``viewers`` by result folder."""
    shown = _first(rows)
    data = {
        "runs": [
            {"label": run.label, "viewer": viewers.get(run.folder, ""), "kept": files_kept(run.folder)} for run in runs
        ],
        "metrics": {row.metric: metric_name(row.metric) for row in shown},
        "rows": [_entry(row) for row in shown],
    }
    return orjson.dumps(data).decode().replace("<", "\\u003c"), len(shown)


def _first(rows: Sequence[QuestionRow]) -> list[QuestionRow]:
    """The first questions of every file, as many as there is room for; one that has none left is passed over."""
    answers = sum(map(_answers, rows))
    if answers <= MOST:
        return list(rows)
    by_cell: dict[str, list[QuestionRow]] = {}
    for row in rows:
        by_cell.setdefault(row.cell, []).append(row)
    share, room = MOST / answers, MOST
    shown = []
    for row in (row for each in by_cell.values() for row in each[: max(1, int(share * len(each)))]):
        if _answers(row) <= room:
            room -= _answers(row)
            shown.append(row)
    return shown


def _answers(row: QuestionRow) -> int:
    return sum(map(len, row.answers.values()))


def _entry(row: QuestionRow) -> dict[str, Any]:
    return {
        "file": row.cell, "metric": row.metric, "id": row.id, "text": _short(row.text, _TEXT),
        "golds": [_short(gold, _ANSWER) for gold in row.golds[:5]],
        "answers": {
            str(run): [
                {"sample": each.sample, "score": round(100 * each.scores[row.metric], 1),
                 "given": _short(each.prediction, _ANSWER), "failure": each.failure or ""}
                for each in answers
            ]
            for run, answers in row.answers.items()
        },
    }


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
