"""What a report shows, as numbers: training runs, evaluations, and one long frame that everything is drawn from.

A training run::

    RUN/metrics.jsonl             {"rollout": 0, "reward": 0.41, "accuracy": 0.40, "eval/50/sub_em": 0.38, ...}
    RUN/eval/before/              an evaluation of the model that the run started from: 0 rollouts
    RUN/eval/during-iter_0000049/ between rollouts, whose means stand in that rollout's line as well
    RUN/eval/after-iter_0000099/  of the checkpoint that was written after rollout 99: 100 rollouts

An evaluation that lies elsewhere belongs to a run as well where the evaluated model does: ``RUN/hf/iter_0000099``.

The frame has one line for each number; tables, ``results.csv`` and plots are pivots of it, and ``text`` is how a
table shows the number::

    kind       run            source  task               length  data      family  metric         mean  low   high
    run        before                 multi-document QA  50      9f2c..    score   sub_em         25.0  15.0  35.0
    run        before                 multi-document QA  50      9f2c..    cost    turns           3.0   3.0   3.0
    published  ReMemR1-7B ..  arXiv.. multi-document QA  50      HotpotQA  score   sub_em_legacy  82.3

Invariants: positions of a run are rollouts done, so the line of rollout 0 stands at 1; one that was written twice
counts as it was written last; what a killed run left of its last line is not read. A number of a rollout that is
``null``, or is beyond 1e30, is nan, a gap in its curve. Published systems stand in the frame only for tasks of which a
run has one of their lengths in their metric.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pandas as pd
import yaml

from ..evaluation.results import Results, labels_of, length_order, read_results
from ..evaluation.summary import answers_of, averages_of, cells_of, summary_of
from ..memsifter.stages import EMBED
from ..memsifter.table import SifterScores, sifter_scores
from ..system.errors import MemAgentError

COUNTS = ("questions", "rows", "failed", "missing")
_INDEX = ["kind", "run", "source", "task", "length", "data"]
POINTS = ["run", "rollouts", "file", "metric", "mean", "low", "high"]
METRICS_FILE, _BETWEEN = "metrics.jsonl", "during-"
PUBLISHED = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
QUESTIONS = 128
"""Of a published number."""


class TrainingRun(NamedTuple):
    label: str
    folder: Path
    rollouts: pd.DataFrame
    """A line for each rollout by rollouts done, a column for each of its numbers."""

    def first_and_last(self, name: str) -> tuple[float, float, int] | None:
        """The mean over the first and over the last rollouts that have the number, ten of each or half of them; None
        with fewer than two."""
        values = self.rollouts.get(name, pd.Series(dtype=float)).dropna()
        count = min(10, len(values) // 2)
        return (float(values.iloc[:count].mean()), float(values.iloc[-count:].mean()), count) if count else None


class Material(NamedTuple):
    """Everything that a report is made of."""

    trained: list[TrainingRun]
    results: list[Results]
    """That are compared with the first of them."""
    answers: pd.DataFrame
    """Theirs (``evaluation.summary.answers_of``)."""
    summary: pd.DataFrame
    """Of each of their files."""
    frame: pd.DataFrame
    points: pd.DataFrame
    """Evaluations on the curves of training, in percent, by run, file and rollouts done; without an interval (nan)
    where the answers are not there."""
    sifted: dict[str, SifterScores]
    """Of the sifter's stages, by the folder's name."""


def read_material(given: Sequence[Path]) -> Material:
    """Raises MemAgentError where a folder is neither run nor results, or is empty."""
    folders = list(dict.fromkeys(path.resolve() for path in given))
    runs = [path for path in folders if (path / METRICS_FILE).is_file()]
    sifted = [path for path in folders if path not in runs and any(path.rglob(f"*_{EMBED}.parquet"))]
    results = [path for path in folders if path not in (*runs, *sifted)]
    trained = [TrainingRun(label, path, _rollouts(path / METRICS_FILE))
               for label, path in zip(labels_of(runs), runs, strict=True)]
    own = [evaluations_of(path) for path in runs]
    compared = read_results([*(path for found, _ in own for path in found), *results])
    between = read_results([path for _, found in own for path in found])
    summary = summary_of(compared)
    evaluated = [*_judged(between, summary_of(between)), *_judged(compared, summary)]
    points = pd.DataFrame([point for run in trained for point in points_of(run, evaluated)], columns=POINTS)
    return Material(trained, compared, answers_of(compared), summary, frame_of(summary), points,
                    {path.name: sifter_scores(path) for path in sifted})


# --- training -----------------------------------------------------------------------------------------------------


def _rollouts(path: Path) -> pd.DataFrame:
    if not (lines := list(map(orjson.loads, path.read_bytes().split(b"\n")[:-1]))):
        raise MemAgentError(f"{path}: no rollout yet; wait for the first one")
    numbers = pd.DataFrame(lines).drop_duplicates("rollout", keep="last").set_index("rollout").sort_index()
    numbers = numbers.apply(pd.to_numeric, errors="coerce")
    return numbers.where(numbers.abs() < 1e30).rename(index=lambda rollout: rollout + 1)


def evaluations_of(run: Path) -> tuple[list[Path], list[Path]]:
    """The result folders that a run keeps, in the order of its checkpoints: those that are compared, and those between
    rollouts, which are points of the curve alone, except one that nothing came after."""
    found = [path.parent for path in run.glob("eval/*/run.json")
             if any(rows.stat().st_size for rows in path.parent.glob("*.jsonl"))]
    found.sort(key=lambda path: (_seen(path.name), path.name.startswith("after")))
    between = [path for path in found[:-1] if path.name.startswith(_BETWEEN)]
    return [path for path in found if path not in between], between


def _seen(name: str) -> int:
    """The rollouts that a checkpoint, or an evaluation of it, has seen, by its name; 0 for the start."""
    found = re.search(r"iter_([0-9]{7,18})$", name)
    return int(found[1]) + 1 if found else 0


def _judged(results: Sequence[Results], summary: pd.DataFrame) -> Iterator[tuple[Results, str, Any]]:
    """Each file of results that has all its answers, with the line of the score that it is judged by."""
    known = {result.label: result for result in results}
    for run, file, lines, main in cells_of(summary):
        if main and not lines["missing"].mean:
            yield known[run], file, main


def points_of(run: TrainingRun, evaluated: Sequence[tuple[Results, str, Any]]) -> list[tuple[Any, ...]]:
    """Every evaluation of the run, by file and then by rollouts: its own lines, of each file in the first number that
    is a share, then answers, the later ones last."""
    points: dict[tuple[str, int], tuple[Any, ...]] = {}
    judged: dict[str, str] = {}
    for name, values in run.rollouts.filter(regex="^eval/[^/]+/").items():
        _, file, metric = name.split("/", 2)
        shares = values.dropna()
        if shares.between(0, 1).all() and judged.setdefault(file, metric) == metric:
            for done, share in shares.items():
                points[file, done] = (metric, 100 * share, nan, nan)
    for result, file, line in evaluated:
        model = Path(result.run.model_name).resolve()
        if result.folder.parent == run.folder / "eval":
            points[file, _seen(result.folder.name)] = (line.metric, line.mean, line.low, line.high)
        elif run.folder in model.parents:
            points[file, _seen(model.name)] = (line.metric, line.mean, line.low, line.high)
    keys = sorted(points, key=lambda key: (length_order(key[0]), key[1]))
    return [(run.label, done, file, *points[file, done]) for file, done in keys]


# --- the frame ----------------------------------------------------------------------------------------------------


def task_name(task: str) -> str:
    return task or "multi-document QA"


def frame_of(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary of evaluations with the averages of suites; then published systems, with a note, and whether a plot
    has them (``drawn``)."""
    ours = pd.concat([summary, averages_of(summary)], ignore_index=True)
    ours = ours.assign(kind="run", source="", task=ours["task"].map(task_name), drawn=False)
    frame = pd.concat([ours, pd.DataFrame(_published(ours))], ignore_index=True)
    return frame.assign(text=[shown(line) for line in frame.itertuples()], main=frame["main"].eq(True))


def _published(ours: pd.DataFrame) -> Iterator[dict[str, Any]]:
    lengths = ours.groupby(["task", "metric"])["length"].agg(set)
    for name, group in PUBLISHED["data_sets"].items():
        for (task, metric), known in lengths.items():
            if metric != group["metric"] or task.lower() not in group["tasks"]:
                continue
            for row in group["systems"]:
                accuracy = dict(zip(group["lengths"], row["accuracy"], strict=False))
                for length, value in accuracy.items() if known & set(accuracy) else ():
                    line = {"kind": "published", "run": f"{row['system']} (published)", "source": row["source"],
                            "task": task, "length": length, "data": name, "note": row.get("note", "–"),
                            "drawn": row.get("drawn", False)}
                    yield line | {"family": "count", "metric": "questions", "mean": QUESTIONS}
                    yield line | {"family": "score", "metric": metric, "mean": value}


def shown(line: Any) -> str:
    """A number as tables have it: shares in percent with their interval on a line of its own, decimals of others only
    where they are small."""
    if line.metric == "not_read":
        return f"{line.mean:.1f}%"
    if line.family in ("count", "turn"):
        return f"{line.mean:,.0f}"
    if line.family == "cost":
        return f"{line.mean:,.2f}" if line.mean < 100 else f"{line.mean:,.0f}"
    return with_interval(line)


def with_interval(line: Any) -> str:
    return f"{line.mean:.1f}" + ("" if isnan(line.low) else f"\n[{line.low:.1f}, {line.high:.1f}]")


def spread(long: pd.DataFrame, index: Sequence[str], column: str, value: str) -> pd.DataFrame:
    """A row for each value of ``index``, a column for each of ``column``, both as they come."""
    cells = long.set_index([*index, column])[value]
    return cells.unstack().reindex(cells.index.droplevel(-1).unique())[long[column].unique()].reset_index()


def results_csv(frame: pd.DataFrame) -> str:
    """A line for each run, task and length, and for each published number; every metric in full precision."""
    long = frame.drop_duplicates([*_INDEX, "metric"]).melt([*_INDEX, "metric"], ["mean", "low", "high"])
    long["metric"] += long["variable"].map({"mean": "", "low": "_low", "high": "_high"})
    wide = spread(long, _INDEX, "metric", "value").dropna(axis="columns", how="all")
    return wide.astype(dict.fromkeys(COUNTS, "Int64")).to_csv(index=False, lineterminator="\n")
