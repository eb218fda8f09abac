"""A training run as a report reads it: the lines of ``metrics.jsonl``, and the evaluations of its checkpoints.

::

    RUN/metrics.jsonl            {"rollout": 0, "reward": 0.41, "accuracy": 0.40, "eval/50/sub_em": 0.38, ...}
    RUN/eval/before/             an evaluation of the model that the run started from: 0 rollouts
    RUN/eval/during-iter_0000049/ between rollouts, whose means stand in that rollout's line as well
    RUN/eval/after-iter_0000099/ of the checkpoint that was written after rollout 99: 100 rollouts

An evaluation that lies elsewhere belongs to a run as well where the evaluated model does: ``RUN/hf/iter_0000099``.

Invariants: positions are rollouts done, so the line of rollout 0 stands at 1; a rollout that was written twice counts
as it was written last; what a killed run left of its last line is not read, any other damage is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean

import orjson

from ..evaluation.results import METRICS, Results, labels_of, length_order
from ..evaluation.statistics import Estimate
from ..evaluation.summary import main_metric, summarise
from ..system.errors import MemAgentError
from .drawable import is_drawable

METRICS_FILE, _EVALUATIONS, _BETWEEN, _KEY = "metrics.jsonl", "eval", "during-", "eval/"
_ENDS = 10
"""Rollouts at either end that a run's progress is read from."""
_PUT_ASIDE = re.compile(r"iter_[0-9]+\.[0-9]+$")
"""Answers of other weights, of a run that was set back."""


class RunError(MemAgentError):
    """What is given is no run whose curves can be drawn."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    label: str
    folder: Path
    rollouts: Mapping[int, Mapping[str, float]]
    """Its numbers by rollouts done, in order; nan stands for what was none, or is too large to be drawn."""


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation on a training curve, in percent."""

    rollouts: int
    length: str
    """What the evaluation file is called."""
    metric: str
    mean: float
    found: Estimate | None
    """With its interval, where the answers are there."""


def is_training_run(folder: Path) -> bool:
    return (folder / METRICS_FILE).is_file()


def read_training_runs(folders: Sequence[Path]) -> list[TrainingRun]:
    """Raises RunError where one has no rollout, or a damaged line."""
    resolved = [folder.resolve() for folder in folders]
    return [TrainingRun(label, folder, _rollouts(folder / METRICS_FILE))
            for label, folder in zip(labels_of(resolved), resolved, strict=True)]


def evaluations_in(folder: Path) -> list[Path]:
    """The result folders that a run keeps, in the order of its checkpoints; those without an answer are left out, and
    so are those between rollouts, which are points of the curve, but for one that nothing came after."""
    found = _evaluated(folder)
    return [path for path in found if not path.name.startswith(_BETWEEN) or path == found[-1]]


def between_rollouts(folder: Path) -> list[Path]:
    """Those that are points of the curve alone."""
    return [path for path in _evaluated(folder)[:-1] if path.name.startswith(_BETWEEN)]


def _evaluated(folder: Path) -> list[Path]:
    found = [path.parent for path in folder.glob(f"{_EVALUATIONS}/*/run.json") if _is_begun(path.parent)]
    found = [path for path in found if not _PUT_ASIDE.search(path.name)]
    found.sort(key=lambda path: (-1 if (at := _checkpoint(path)) is None else at, path.name.startswith("after")))
    return found


def _is_begun(folder: Path) -> bool:
    """Whether it has an answer; a full disk, or a killed run, leaves a file with none, or with half a line."""
    for path in folder.glob("*.jsonl"):
        with path.open("rb") as file:
            if file.readline().endswith(b"\n"):
                return True
    return False


def points_of(run: TrainingRun, results: Sequence[Results]) -> list[Point]:
    """Every evaluation of the run, by length and then by rollouts; answers go before the run's own line about them.

    Of two results for the same place the later one counts. An evaluation between rollouts that lacks answers is none.
    """
    points: dict[tuple[str, int], Point] = {}
    for done, numbers in run.rollouts.items():
        found: dict[str, list[str]] = {}
        for name in numbers:
            length, _, metric = name.removeprefix(_KEY).partition("/")
            if name.startswith(_KEY) and metric:
                found.setdefault(length, []).append(metric)
        for length, metrics in found.items():
            shares = [name for name in metrics if 0 <= numbers[f"{_KEY}{length}/{name}"] <= 1]
            known = [name for name in (*METRICS, "accuracy", "reward") if name in shares]
            if judged := main_metric([*known, *shares]):
                mean = 100 * numbers[f"{_KEY}{length}/{judged}"]
                points[length, done] = Point(done, length, judged, mean, None)
    for result in results:
        at = _position(run, result)
        for summary in [summarise(result.label, cell) for cell in result.cells if at is not None]:
            unfinished = summary.missing and result.folder.name.startswith(_BETWEEN)
            if (judged := main_metric(summary.scores)) and not unfinished:
                score = summary.scores[judged]
                points[summary.name, at or 0] = Point(at or 0, summary.name, judged, score.mean, score)
    return sorted(points.values(), key=lambda point: (length_order(point.length), point.rollouts))


def first_and_last(run: TrainingRun, name: str) -> tuple[float, float, int] | None:
    """The mean of a number over the first and the last rollouts, and over how many; None with fewer than two."""
    values = [numbers[name] for numbers in run.rollouts.values() if is_drawable(numbers.get(name, nan))]
    count = min(_ENDS, len(values) // 2)
    return (fmean(values[:count]), fmean(values[-count:]), count) if count else None


def _position(run: TrainingRun, result: Results) -> int | None:
    """The rollouts that the evaluated model has seen; None where it is not of this run."""
    of_run = result.folder.parent == run.folder / _EVALUATIONS
    within = run.folder in Path(result.run.model_name).resolve().parents
    if not of_run and not within:
        return None
    own = _checkpoint(result.folder) if of_run else None
    after = own if own is not None else result.run.checkpoint if within else None
    return after + 1 if after is not None else 0 if of_run else None


def _checkpoint(folder: Path) -> int | None:
    """As the name of an evaluation in a run says: the model may be the one that the run started from."""
    found = re.search(r"iter_([0-9]{7,18})$", folder.name)
    return int(found[1]) if found else None


def _rollouts(path: Path) -> dict[int, dict[str, float]]:
    lines: dict[int, dict[str, float]] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                fields = orjson.loads(line)
                done = int(fields["rollout"]) + 1
                numbers = {name: _number(v) for name, v in fields.items() if type(v) in (int, float, type(None))}
            except (ValueError, TypeError, KeyError, AttributeError):
                raise RunError(f"{path}: line {number} is no rollout; remove that line") from None
            lines[done] = numbers
    if not lines:
        raise RunError(f"{path}: no rollout yet; wait for the first one")
    return dict(sorted(lines.items()))


def _number(value: float | None) -> float:
    return float(value) if value is not None and is_drawable(value) else nan
