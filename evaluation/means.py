"""The numbers of a result folder for machines: scores as shares of 1, then costs, by length, without intervals.

A score is over all rows, failed ones as the evaluation scored them; a cost over those that did not fail; the samples
of a question are averaged first (``summary``). What a length is judged by comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from .results import Cell, Row, read_cell, read_run
from .summary import question_means, shared_metrics

_COSTS = ("turns", "rounds", "memory_tokens", "response_tokens")


def means(output: Path) -> dict[str, dict[str, float]]:
    """By length; one without a row has no entry."""
    run = read_run(output)
    cells = [read_cell(output, run, name) for name in run.lengths]
    return {cell.name: _of(cell) for cell in cells if cell.rows}


def _of(cell: Cell) -> dict[str, float]:
    ended = [row for row in cell.rows if row.failure is None]
    found = {name: fmean(question_means(cell.rows, _score(name)).values()) for name in shared_metrics(cell.rows)}
    for name in _COSTS:
        if values := question_means(ended, _count(name)):
            found[name] = fmean(values.values())
    questions = len({row.question for row in cell.rows})
    return found | {"questions": float(questions), "failed": float(len(cell.rows) - len(ended))}


def _score(name: str) -> Callable[[Row], float]:
    return lambda row: row.scores[name]


def _count(name: str) -> Callable[[Row], float | None]:
    return lambda row: row.counts.get(name)
