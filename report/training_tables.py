"""Training runs in numbers: how their means moved, and the evaluations of their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from .tables import Table
from .training_run import Point, TrainingRun, first_and_last
from .wording import metric_name, with_interval

_SHOWN = (
    ("reward", 3), ("accuracy", 3), ("mixed_groups", 2), ("gold_in_memory/last", 2), ("memory_tokens", 1),
    ("turns", 1), ("loss", 5), ("kl", 4), ("grad_norm", 3), ("seconds", 1),
)


def training_tables(runs: Sequence[TrainingRun], points: Sequence[Sequence[Point]]) -> list[Table]:
    return [table for table in (_progress(runs), _evaluations(runs, points)) if table.rows]


def _progress(runs: Sequence[TrainingRun]) -> Table:
    names = [name for name, _ in _SHOWN if any(first_and_last(run, name) for run in runs)]
    digits = dict(_SHOWN)
    header = ("run", "rollouts", *(name.replace("_", " ").replace("/", ", ") for name in names))
    rows = []
    for run in runs:
        ends = [(first_and_last(run, name), digits[name]) for name in names]
        cells = (f"{e[0]:.{d}f}\n{e[1]:.{d}f}" if e else "–" for e, d in ends)
        rows.append((run.label, str(max(run.rollouts)), *cells))
    note = "Means of the first rollouts, below them of the last: ten of each, or half of a run of fewer than twenty."
    return Table("First and last rollouts", header, tuple(rows) if names else (), note)


def _evaluations(runs: Sequence[TrainingRun], points: Sequence[Sequence[Point]]) -> Table:
    rows = tuple(
        (run.label, str(point.rollouts), point.length, metric_name(point.metric),
         with_interval(point.found) if point.found else f"{point.mean:.1f}")
        for run, found in zip(runs, points, strict=True) for point in found
    )
    note = "Percent; 95% intervals over questions where the answers are there."
    return Table("Evaluated while training, and around it", ("run", "after rollouts", "file", "metric", "score"), rows,
                 note, words=frozenset({"run", "file", "metric"}))
