"""Published accuracy (``published.yaml``), and how runs stand beside it.

Invariants: runs are compared in METRIC alone, over the lengths that both have; "above" and "below" are said only of a
difference larger than both 95% intervals together explain. A published accuracy's interval is that of its number of
questions, however many lengths are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, nan, sqrt
from pathlib import Path

import pandas as pd
import yaml

from .data import COLUMNS

METRIC = "sub_em_legacy"
QUESTIONS = 128
_FILE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
CAVEATS: tuple[str, ...] = tuple(_FILE["caveats"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    system: str
    dataset: str
    tasks: Sequence[str]
    """What our tasks on that data set are called."""
    metric: str
    source: str
    accuracy: Mapping[str, float]
    """Percent by length."""
    note: str = "–"
    drawn: bool = False

    @property
    def label(self) -> str:
        return f"{self.system} (published)"


PUBLISHED = tuple(
    Published(**row | {"accuracy": dict(zip(group["lengths"], row["accuracy"], strict=False))}, dataset=dataset,
              tasks=group["tasks"], metric=group["metric"])
    for dataset, group in _FILE["data_sets"].items() for row in group["systems"]
)


def published_beside(frame: pd.DataFrame) -> dict[str, list[Published]]:
    """By task, the systems that share a length with a run in their metric; a task without one is not there."""
    known = {(task.lower(), metric, length)
             for task, metric, length in frame[["task", "metric", "length"]].itertuples(index=False)}
    beside = {task: [row for row in PUBLISHED if task.lower() in row.tasks
                     and any((task.lower(), row.metric, length) in known for length in row.accuracy)]
              for task in frame["task"].unique()}
    return {task: rows for task, rows in beside.items() if rows}


def published_frame(beside: Mapping[str, Sequence[Published]]) -> pd.DataFrame:
    """Lines of the frame, beside those of runs."""
    return pd.DataFrame([
        ("published", row.label, row.source, task, length, "", family, name, value, nan, nan, QUESTIONS)
        for task, rows in beside.items() for row in rows for length, accuracy in row.accuracy.items()
        for family, name, value in (("count", "questions", QUESTIONS), ("score", row.metric, accuracy))
    ], columns=COLUMNS)


def half_width(accuracy: float, questions: int = QUESTIONS) -> float:
    """Half of the 95% interval that so many independent questions give an accuracy in percent, in points."""
    share = min(max(accuracy / 100, 0.5 / questions), 1 - 0.5 / questions)
    return 100 * 1.96 * sqrt(share * (1 - share) / questions)


def verdict(mine: float, half: float, theirs: float) -> str:
    """above, below, or level: no difference that so many questions can show; ``half`` as above, of ``mine``."""
    if abs(mine - theirs) <= hypot(half, half_width(theirs)):
        return "level"
    return "above" if mine > theirs else "below"
