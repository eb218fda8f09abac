"""The tables: one description of each, written as Markdown or as HTML by the page; ``texts.yaml`` has titles and
notes. Most are pivots of the frame.

Invariants: published rows say that they are, and stand only in tables of the published metric; a number that is not
known is a dash, never 0; "above" and "below" are said only of a difference larger than both 95% intervals together
explain. A published accuracy's interval is that of its number of questions, however many lengths are averaged.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from math import hypot, sqrt
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import pandas as pd
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..evaluation.results import Results, length_order, task_and_length
from ..evaluation.summary import COSTS, differences
from ..memsifter.table import WORDS as SIFTER_WORDS
from ..memsifter.table import SifterScores, table_of
from ..system.text import markdown_cell, markdown_table
from .data import QUESTIONS, Material, TrainingRun, spread, task_name, with_interval

TEXTS = yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8"))
WORDS = frozenset({"run", "model", "checkpoint", "system", "task", "metric", "source", "note", "reading", "file",
                   *SIFTER_WORDS})
"""The columns of words; all others are numbers."""


def render(folder: Path, template: str, **values: Any) -> str:
    """A template of ``folder`` with these values; ``file`` is the text of another file there."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["base64"] = lambda content: b64encode(content).decode()
    environment.globals |= {"file": lambda name: Markup((folder / name).read_text(encoding="utf-8")), "words": WORDS}
    return environment.from_string((folder / template).read_text(encoding="utf-8")).render(**values)


class Table(NamedTuple):
    title: str
    cells: pd.DataFrame
    """Of strings, without the column of tasks where there is only one."""
    note: str = ""

    def markdown(self) -> str:
        note = f"\n{markdown_cell(self.note)}\n" if self.note else ""
        cells = markdown_table(list(self.cells), self.cells.itertuples(index=False), WORDS)
        return f"### {markdown_cell(self.title)}\n\n{cells}\n{note}"


def table(name: str, rows: Sequence[dict[str, str]] | pd.DataFrame, **filled: str) -> list[Table]:
    """The table of this name in ``texts.yaml``; none without a row; a dash where a row has no such cell."""
    cells = pd.DataFrame(rows).fillna("–")
    if "task" in cells and cells["task"].nunique() == 1:
        cells = cells.drop(columns="task")
    texts = TEXTS["tables"][name]
    return [Table(texts["title"].format(**filled), cells, texts["note"].format(**filled))] if len(cells) else []


def pivot(
    name: str, part: pd.DataFrame, index: Sequence[str] = ("run", "task", "length"), column: str = "metric",
    **filled: str,
) -> list[Table]:
    """A row for each value of ``index``, a column for each of ``column``, both as they come."""
    return table(name, spread(part, index, column, "text") if len(part) else part, **filled)


def shorten(name: str, most: int = 60) -> str:
    """The name, or its two ends where it is too long."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 + 1 :]}"


def tables_of(material: Material) -> dict[str, list[Table]]:
    """By section of the page."""
    runs = material.frame[material.frame["kind"] == "run"]
    parts = {name: runs[runs["family"] == name] for name in ("average", "pass", "turn", "cost")}
    costs, usual = parts["cost"], parts.pop("cost")["metric"].isin(COSTS)
    parts |= {"metrics": runs[runs["family"].isin(("count", "score"))], "costs": costs[usual],
              "counts": costs[~usual & ~costs["metric"].str.endswith("_tokens")]}
    plain = {name: pivot(name, part) for name, part in parts.items()}
    standing, published = headline_table(material), list[Table]()
    for _, part in material.frame.groupby("task", sort=False):
        part = part[part["length"].isin(part.loc[part["kind"] == "run", "length"])]
        plain["average"] += accuracy_table(part[part["main"]])
        beside = part[(part["kind"] == "published") & (part["family"] == "score")]
        if len(beside):
            dataset, metric = beside[["data", "metric"]].iloc[0]
            part = part[part["metric"] == metric]
            standing += table("standing", standing_rows(part), dataset=dataset, metric=metric)
            published += accuracy_table(part)
            sources = beside.rename(columns={"run": "system"})[["system", "source", "note"]].drop_duplicates()
            published += table("sources", sources, dataset=dataset)
    return {
        "sifter": sifter_tables(material.sifted), "training": training_tables(material.trained, material.points),
        "standing": standing, "published": published,
        "accuracy": plain["average"] + plain["pass"] + plain["metrics"] + difference_table(material),
        "cost": plain["costs"] + plain["counts"], "memory": plain["turn"],
    }


# --- evaluations --------------------------------------------------------------------------------------------------


def model_of(result: Results) -> tuple[str, str]:
    """The model and the checkpoint of it that was evaluated, by their folders' names; the hash of the weights where
    there is none."""
    path, own = PurePath(result.run.model_name), result.folder
    if made := re.search(r"iter_[0-9]{7,18}$", own.name) if own.parent.name == "eval" else None:
        return own.parent.parent.name, made[0]  # a run's engines have other weights than the model they started from
    if hub := [part for part in path.parts if part.startswith("models--")]:
        return hub[0].removeprefix("models--").replace("--", "/", 1), "–"
    if not re.fullmatch(r"iter_[0-9]{7,18}", path.name):
        return path.name or result.run.model[:10], "–"
    return (path.parent.parent if path.parent.name == "hf" else path.parent).name, path.name


def headline_table(material: Material) -> list[Table]:
    """A row for each run and task: its main metric, averaged over its lengths."""
    models = {result.label: model_of(result) for result in material.results}
    runs, rows = material.frame[material.frame["kind"] == "run"], []
    for (run, task), part in runs.groupby(["run", "task"], sort=False):
        scores = part[part["main"]]
        if scores.empty:
            continue
        counts = part[part["family"] == "count"].groupby("metric")["mean"]
        total, most = counts.sum(), counts.max().get("not_read")
        shortest, longest = (f"{end['text']}\nat {end['length']}" for end in (scores.iloc[0], scores.iloc[-1]))
        rows.append({
            "run": run, "model": models[run][0], "checkpoint": models[run][1], "task": task,
            "metric": scores["metric"].iloc[0], "lengths": str(len(scores)),
            "mean of lengths": f"{scores['mean'].mean():.1f}", "shortest": shortest, "longest": longest,
            **{name: f"{total[name]:.0f}" for name in ("failed", "missing") if name in total},
            "not read": "–" if most is None else f"{most:.1f}%"})
    return table("runs", rows)


def accuracy_table(part: pd.DataFrame) -> list[Table]:
    """Of one task's metric: a row for each run, and below them for each published system; a column per length of
    ours."""
    part = part.sort_values("length", key=lambda lengths: lengths.map(length_order), kind="stable")
    part = part.sort_values("kind", ascending=False, kind="stable").rename(columns={"run": "system"})
    return pivot("accuracy", part, ["system"], "length", task=part["task"].max(), metric=part["metric"].max())


def standing_rows(part: pd.DataFrame) -> list[dict[str, str]]:
    """Each run of a task beside each system that shares lengths with it, both averaged over those."""
    both = part[part["kind"] == "run"].merge(part[part["kind"] == "published"], on="length", suffixes=("", "_theirs"))
    rows = []
    for (run, system), shared in both.groupby(["run", "run_theirs"], sort=False):
        # Lengths may ask the same questions, so their average is as sure as its least sure length.
        mine, half = shared["mean"].mean(), ((shared["high"] - shared["low"]) / 2).max()
        theirs = shared["mean_theirs"].mean()
        rows.append({
            "system": system, "run": run, "lengths": " to ".join(shared["length"].iloc[[0, -1]].unique()),
            "published": f"{theirs:.1f}", "this report": f"{mine:.1f} ± {half:.1f}",
            "difference": f"{mine - theirs:+z.1f}", "reading": verdict(mine, half, theirs)})
    return rows


def half_width(accuracy: float, questions: int = QUESTIONS) -> float:
    """Half of the 95% interval that so many independent questions give an accuracy in percent, in points."""
    share = min(max(accuracy / 100, 0.5 / questions), 1 - 0.5 / questions)
    return 100 * 1.96 * sqrt(share * (1 - share) / questions)


def verdict(mine: float, half: float, theirs: float) -> str:
    """above, below, or level: no difference that so many questions can show; ``half`` as above, of ``mine``."""
    if abs(mine - theirs) <= hypot(half, half_width(theirs)):
        return "level"
    return "above" if mine > theirs else "below"


def reading_of(points: Any) -> str:
    return "better" if points.low > 0 else "worse" if points.high < 0 else "no clear difference"


def difference_table(material: Material) -> list[Table]:
    """One row per difference of a run, which is named beside it, from the first run."""
    rows, labels = [], [result.label for result in material.results]
    for run in labels[1:]:
        for each in differences(material.answers, labels[0], run, ["metric", "file"]):
            points, (task, length) = each.found.difference, task_and_length(each.files[0])
            rows.append({
                "run": run, "task": task_name(task), "length": length, "metric": each.metric,
                "questions": str(points.n), "first": f"{each.found.first:.1f}", "this": f"{each.found.second:.1f}",
                "difference in points": f"{points.mean:+z.1f} [{points.low:+z.1f}, {points.high:+z.1f}]",
                "p": each.found.p_text.replace(" (", "\n("), "reading": reading_of(points)})
    return table("differences", rows, base=labels[0] if labels else "")


# --- training and the sifter --------------------------------------------------------------------------------------


def training_tables(runs: Sequence[TrainingRun], points: pd.DataFrame) -> list[Table]:
    """How the means of training runs moved, and the evaluations of their checkpoints."""
    progress = []
    for run in runs:
        ends = {name: run.first_and_last(name) for name in ("accuracy", *TEXTS["curves"])}
        cells = {name.replace("_", " "): f"{each[0]:.3g}\n{each[1]:.3g}" for name, each in ends.items() if each}
        progress += [{"run": run.label, "rollouts": str(run.rollouts.index.max()), **cells}] if cells else []
    evaluated = [{"run": point.run, "after rollouts": str(point.rollouts), "file": point.file,
                  "percent": with_interval(point), "metric": point.metric} for point in points.itertuples()]
    return table("progress", progress) + table("points", evaluated)


def sifter_tables(sifted: Mapping[str, SifterScores]) -> list[Table]:
    """Of each results folder, by its name, which stands in the titles where there are several; intervals on a line of
    their own."""
    tables = []
    for label, scores in sifted.items():
        for measure in ("retrieval", "answers"):
            lines = [line for line in scores.lines if line.measure == measure]
            header, rows = table_of(lines) if lines else ((), [])
            cells = pd.DataFrame(rows, columns=header).replace(r" \[", "\n[", regex=True)
            tables += table(measure, cells, where=f", {shorten(label)}" * (len(sifted) > 1))
    return tables
