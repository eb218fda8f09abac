"""What a report shows, as numbers: training runs, evaluations, and one long frame that everything is drawn from.

A training run::

    RUN/metrics.jsonl            {"rollout": 0, "reward": 0.41, "accuracy": 0.40, "eval/50/sub_em": 0.38, ...}
    RUN/eval/before/             an evaluation of the model that the run started from: 0 rollouts
    RUN/eval/during-iter_0000049/ between rollouts, whose means stand in that rollout's line as well
    RUN/eval/after-iter_0000099/ of the checkpoint that was written after rollout 99: 100 rollouts

An evaluation that lies elsewhere belongs to a run as well where the evaluated model does: ``RUN/hf/iter_0000099``.

The frame has one line for each number, COLUMNS; tables, ``results.csv`` and plots are pivots of it::

    kind   run     source  task               length  data    family  metric  mean  low   high  n
    run    before          multi-document QA  50      9f2c..  score   sub_em  25.0  15.0  35.0  30
    run    before          multi-document QA  50      9f2c..  cost    turns    3.0   3.0   3.0  30

Invariants: positions of a run are rollouts done, so the line of rollout 0 stands at 1; one that was written twice
counts as it was written last; what a killed run left of its last line is not read, any other damage is named. A number
of a rollout that is none (``null``), or is beyond 1e30, is inf; one that is not there is nan.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import NamedTuple

import orjson
import pandas as pd

from ..evaluation.results import METRICS, Results, labels_of, length_order
from ..evaluation.statistics import Estimate
from ..evaluation.summary import Summary, main_metric, ruler_lines
from ..system.errors import MemAgentError

COUNTS = ("questions", "rows", "failed", "missing")
COLUMNS = ("kind", "run", "source", "task", "length", "data", "family", "metric", "mean", "low", "high", "n")
RULER, TEN = "RULER", "MemAgent's ten"
METRICS_FILE, _BETWEEN, _KEY = "metrics.jsonl", "during-", "eval/"
_SET_BACK = re.compile(r"iter_[0-9]+\.[0-9]+$")
"""Answers of other weights, of a run that was set back."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRun:
    label: str
    folder: Path
    rollouts: pd.DataFrame
    """A line for each rollout by rollouts done, a column for each of its numbers."""

    def numbers(self, name: str) -> pd.Series:
        """Of the rollouts that have it; nan where it is no number."""
        return self.rollouts.get(name, pd.Series(dtype=float)).dropna().replace(inf, nan)

    def first_and_last(self, name: str) -> tuple[float, float, int] | None:
        """The mean over the first and over the last rollouts, ten of each or half of the run; None with fewer than
        two."""
        values = self.numbers(name).dropna()
        count = min(10, len(values) // 2)
        return (float(values.iloc[:count].mean()), float(values.iloc[-count:].mean()), count) if count else None


class Point(NamedTuple):
    """An evaluation on a training curve, in percent."""

    rollouts: int
    length: str
    """What the evaluation file is called."""
    metric: str
    score: Estimate
    """Without an interval (nan) where the answers are not there."""


def is_training_run(folder: Path) -> bool:
    return (folder / METRICS_FILE).is_file()


def read_training_runs(folders: Sequence[Path]) -> list[TrainingRun]:
    """Raises MemAgentError where one has no rollout, or a damaged line."""
    return [TrainingRun(label, folder, _rollouts(folder / METRICS_FILE))
            for label, folder in zip(labels_of(folders), folders, strict=True)]


def _rollouts(path: Path) -> pd.DataFrame:
    lines: dict[int, dict[str, float]] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            fields = orjson.loads(line)
            lines[int(fields["rollout"]) + 1] = {
                name: inf if value is None or abs(value) > 1e30 else float(value)
                for name, value in fields.items() if type(value) in (int, float, type(None))}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise MemAgentError(f"{path}: line {number} is no rollout; remove that line") from None
    if not lines:
        raise MemAgentError(f"{path}: no rollout yet; wait for the first one")
    return pd.DataFrame.from_dict(lines, orient="index").sort_index()


def evaluations_of(run: Path) -> tuple[list[Path], list[Path]]:
    """The result folders that a run keeps, in the order of its checkpoints: those that are compared, and those between
    rollouts, which are points of the curve alone, except one that nothing came after."""
    found = [path.parent for path in run.glob("eval/*/run.json") if not _SET_BACK.search(path.parent.name)
             and any(b"\n" in rows.read_bytes() for rows in path.parent.glob("*.jsonl"))]
    found.sort(key=lambda path: (-1 if (at := _checkpoint(path)) is None else at, path.name.startswith("after")))
    between = [path for path in found[:-1] if path.name.startswith(_BETWEEN)]
    return [path for path in found if path not in between], between


def points_of(run: TrainingRun, evaluated: Sequence[tuple[Results, Sequence[Summary]]]) -> list[Point]:
    """Every evaluation of the run, by length and then by rollouts; answers go before the run's own line about them.

    Of two results for the same place the later one counts. An evaluation between rollouts that lacks answers is none.
    """
    points: dict[tuple[str, int], Point] = {}
    shares: dict[str, list[str]] = defaultdict(list)
    for name in run.rollouts.columns:
        length, _, metric = name.removeprefix(_KEY).partition("/")
        if name.startswith(_KEY) and metric and run.numbers(name).dropna().between(0, 1).all():
            shares[length].append(metric)
    for length, names in shares.items():
        judged = next((name for name in (*METRICS, "accuracy", "reward") if name in names), names[0])
        for done, share in run.numbers(f"{_KEY}{length}/{judged}").dropna().items():
            points[length, done] = Point(done, length, judged, Estimate(100 * share, nan, nan, 0))
    for result, summaries in evaluated:
        position = _position(run, result)
        if position is None:
            continue
        for summary in summaries:
            unfinished = summary.missing and result.folder.name.startswith(_BETWEEN)
            if (metric := main_metric(summary.scores)) and not unfinished:
                points[summary.name, position] = Point(position, summary.name, metric, summary.scores[metric])
    return sorted(points.values(), key=lambda point: (length_order(point.length), point.rollouts))


def _position(run: TrainingRun, result: Results) -> int | None:
    """The rollouts that the evaluated model has seen; None where it is not of this run."""
    if result.folder.parent == run.folder / "eval":
        after = _checkpoint(result.folder)
        return 0 if after is None else after + 1
    after = result.run.checkpoint if run.folder in Path(result.run.model_name).resolve().parents else None
    return None if after is None else after + 1


def _checkpoint(folder: Path) -> int | None:
    """As the name of an evaluation in a run says: the model may be the one that the run started from."""
    found = re.search(r"iter_([0-9]{7,18})$", folder.name)
    return int(found[1]) if found else None


# --- the frame ----------------------------------------------------------------------------------------------------


def task_name(task: str) -> str:
    return task or "multi-document QA"


def frame_of(summaries: Sequence[Summary]) -> pd.DataFrame:
    """Every number of evaluations, in families: count, score, cost, pass, turn (by range of turns), and average (of
    RULER's tasks at one length)."""
    lines = [line for summary in summaries for line in _lines(summary)]
    for each in ruler_lines(summaries):
        averages = {TEN: each.ten, "RULER's thirteen": each.thirteen, "qa_1, first gold": each.first_gold}
        lines += [("run", each.run, "", RULER, each.length, "", "average", name, *_numbers(score))
                  for name, score in (*each.tasks.items(), *averages.items()) if score]
    return pd.DataFrame(lines, columns=COLUMNS)


def _lines(s: Summary) -> Iterator[tuple[object, ...]]:
    found = [("count", "not_read", s.not_read), ("pass", f"best@{s.samples}", s.best)]
    found += [("count", name, Estimate(getattr(s, name), nan, nan, 0)) for name in COUNTS]
    found += [("score", name, score) for name, score in s.scores.items()]
    found += [("cost", name, cost) for name, cost in s.costs.items()]
    found += [("pass", f"pass@{k}", chance) for k, chance in s.passes.items()]
    found += [("turn", f"memory_tokens/{turns.name}", turns.tokens) for turns in s.turns]
    found += [("turn", f"gold_in_memory/{turns.name}", turns.gold) for turns in s.turns]
    for family, name, each in found:
        if each:
            yield "run", s.run, "", task_name(s.task), s.length, s.data, family, name, *_numbers(each)


def _numbers(score: Estimate) -> tuple[float, float, float, int]:
    return score.mean, score.low, score.high, score.n


def headline_metric(part: pd.DataFrame) -> str | None:
    """The metric that the task of these lines is judged by; None without a score."""
    return main_metric(part.loc[part["family"] == "score", "metric"])


def results_csv(frame: pd.DataFrame) -> str:
    """A line for each run, task and length, and for each published number; every metric in full precision."""
    index = list(COLUMNS[:6])
    frame = frame.drop_duplicates([*index, "metric"])
    wide = frame.pivot(index=index, columns="metric", values=["mean", "low", "high"])
    wide = wide.reindex(pd.MultiIndex.from_frame(frame[index].drop_duplicates()))
    wide = wide[[(value, name) for name in frame["metric"].unique() for value in ("mean", "low", "high")]]
    wide = wide.dropna(axis="columns", how="all")
    wide.columns = [name + {"mean": "", "low": "_low", "high": "_high"}[value] for value, name in wide.columns]
    return wide.astype(dict.fromkeys(COUNTS, "Int64")).copy().reset_index().to_csv(index=False, lineterminator="\n")
