"""Which checkpoints of a round are averaged: those that answer the round's test questions best.

The score of a checkpoint is the mean over the data sets of what their task is judged by, itself a mean over questions
(``evaluation.summary``); of equal ones the later is better. MemSifter averages the best by validation at the end of
each round (arXiv 2603.03379), and leaves it to the reader to say which those are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ...evaluation.results import Row, read_results
from ...evaluation.summary import main_metric, question_means, shared_metrics
from ...system.errors import MemAgentError


class NotValidated(MemAgentError):
    """A checkpoint without a score; names its results."""


def score_of(results: Path) -> float:
    """Raises NotValidated, EvalError."""
    (found,) = read_results([results])
    rows = [row for cell in found.cells for row in cell.rows]
    if rows and all(row.failure for row in rows):
        raise NotValidated(f"{results}: all {len(rows)} answers failed ({rows[-1].failure_message}); once that is "
                           "seen to, the same command asks for them again")
    scores = []
    for cell in found.cells:
        metric = main_metric(shared_metrics(cell.rows))
        if metric is None or cell.missing:
            raise NotValidated(f"{results}: {cell.missing} answers of {cell.name} are missing; evaluate it again")
        means = question_means(cell.rows, partial(_score, metric))
        scores.append(sum(means.values()) / len(means))
    return sum(scores) / len(scores)


def _score(metric: str, row: Row) -> float:
    return row.scores[metric]


def best(scores: Mapping[str, float], count: int) -> list[str]:
    """The names of the ``count`` best checkpoints, in the order in which they were trained."""
    trained = sorted(scores)
    ranked = sorted(trained, key=lambda name: (scores[name], trained.index(name)), reverse=True)
    return sorted(ranked[:count])


def all_scores(names: Sequence[str], results: Path) -> dict[str, float]:
    """The score of each checkpoint, whose results lie in ``results``/name."""
    return {name: score_of(results / name) for name in names}
