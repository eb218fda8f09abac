"""``index.html``: one file that shows everything, without anything from outside; and what it says in words.

Invariants: every text that comes from a result is escaped by the template engine, or is JSON without ``<`` that a
script puts into text nodes; images are inlined; nothing is wider than the window. Without scripts everything is there
except the table of questions, which a CSV beside the page has.
"""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..evaluation.results import Results
from ..evaluation.statistics import interval
from ..evaluation.summary import cells_of, differences, mean_by_question, over_files
from ..hooks.traces import kept_files
from .data import Material, TrainingRun, task_name
from .tables import WORDS, model_of, reading_of, shorten

QUESTIONS = ["file", "task", "question_id", "question", "accepted", "run", "sample", "metric", "percent",
             "prediction", "failure"]
"""Columns of ``questions.csv``."""
_LONGEST = 300
"""Characters of a text in the table of questions; ``questions.csv`` has it all."""


def render(folder: Path, template: str, **values: Any) -> str:
    """A template of ``folder`` with these values; ``file`` is the text of another file there."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["base64"] = lambda content: b64encode(content).decode()
    environment.globals |= {"file": lambda name: Markup((folder / name).read_text(encoding="utf-8")), "words": WORDS}
    return environment.from_string((folder / template).read_text(encoding="utf-8")).render(**values)


def warnings(material: Material) -> list[str]:
    """What makes the numbers of this report less than they seem."""
    found = [note for scores in material.sifted.values() for note in scores.notes]
    by_file: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, file, lines, _ in cells_of(material.summary):
        rows, missing = lines["rows"], int(lines["missing"].mean)
        by_file[file][rows.data].append(shorten(run))
        where = f"{run}, {task_name(rows.task)}, {rows.length}"
        if not rows.mean:
            found.append(f"{where}: no rows yet.")
        elif missing:
            found.append(f"{where}: {missing} answers are missing; its means are over the {rows.mean:.0f} that are there.")
        if "not_read" in lines and lines["not_read"].mean > 0:
            found.append(f"{where}: {lines['not_read'].mean:.1f}% of its documents' tokens were not read.")
    unlike: dict[str, list[str]] = defaultdict(list)
    for name, groups in by_file.items():
        if len(groups) > 1:
            unlike[" | ".join(map(", ".join, groups.values()))].append(name)
    return [*(f"{', '.join(same)}: not comparable, because the data files differ: {groups}. These runs are shown "
              "together, but never subtracted." for groups, same in unlike.items()), *found]


def provenance(run: Results) -> tuple[str, dict[str, str], dict[str, str]]:
    """Its label, what to show of it at once, and its longer settings (prompts), which open on demand."""
    texts = {name: v if isinstance(v, str) else orjson.dumps(v).decode() for name, v in run.run.settings.items()}
    model, checkpoint = model_of(run)
    facts = {
        "model": model, "checkpoint": checkpoint, "model folder": run.run.model_name or "–",
        "hash of the weights": run.run.model, "mode": run.run.mode, "folder": str(run.folder),
        "newest row": run.written.strftime("%Y-%m-%d %H:%M UTC"),
        "data": ", ".join(f"{file}: {run.run.data[file]}" for file in run.rows),
        "settings": ", ".join(f"{name}={text}" for name, text in texts.items() if len(text) <= 80),
    }
    return run.label, facts, {name: text for name, text in texts.items() if len(text) > 80}


# --- headlines ----------------------------------------------------------------------------------------------------


class Headline(NamedTuple):
    """What a reader takes away: one number and one sentence for each comparison, or for the only run."""

    number: str
    sentence: str
    reading: str = ""
    """Of a comparison: ``better`` or ``worse`` where the 95% interval leaves 0 out."""


def headlines(material: Material) -> Iterator[Headline]:
    """Each evaluation against the first one; how rewards moved only where nothing was evaluated."""
    labels = [result.label for result in material.results]
    for run in material.trained if not labels else ():
        if ends := run.first_and_last("reward"):
            first, last, count = ends
            yield Headline(f"{last - first:+z.3f}", (
                f"{shorten(run.label)}: mean reward {first:.3f} in the first {count} of {len(run.rollouts)} rollouts, "
                f"{last:.3f} in the last {count}. Rollouts have other questions each, and nothing was evaluated: no "
                "interval."))
    if len(labels) == 1:
        for metric, part in mean_by_question(material.answers).groupby(level="metric", sort=False):
            found = interval(over_files(part), full=100.0)
            yield Headline(f"{found.mean:.1f}%", (
                f"{shorten(labels[0])}: {metric} {found.mean:.1f}% with a 95% interval of {found.low:.1f} to "
                f"{found.high:.1f}; {_over(found.n, part.index.unique('file'))}."))
    for later in labels[1:]:
        this, first, compared = shorten(later), shorten(labels[0]), False
        for each in differences(material.answers, labels[0], later, ["metric"]):
            found, points, compared = each.found, each.found.difference, True
            yield Headline(f"{points.mean:+z.1f}", (
                f"{this} against {first}: {reading_of(points)}, {found.first:.1f}% to {found.second:.1f}% in "
                f"{each.metric}, {points.mean:+z.1f} points with a 95% interval of {points.low:+z.1f} to "
                f"{points.high:+z.1f}, p {found.p_text}; {_over(points.n, each.files)}."), reading_of(points))
        if not compared:
            yield Headline("–", f"{this} and {first} have no answers to the same data: shown together, and not compared.")


def _over(count: int, files: Sequence[str]) -> str:
    questions = f"{count:,} question{'s' * (count != 1)}"
    return f"{questions}, each averaged over the {len(files)} files it is in" if len(files) > 1 else questions


# --- every question -----------------------------------------------------------------------------------------------


def questions_of(answers: pd.DataFrame) -> pd.DataFrame:
    """What is written of each answer, question by question as they were first answered; runs stand beside each other
    only where the file of questions is the same."""
    if not len(answers):
        return pd.DataFrame(columns=[*QUESTIONS, "number", "asked", "failure_message"])
    answers = answers.rename(columns={"_id": "question_id", "input": "question", "pred": "prediction"}).assign(
        asked=answers.groupby(["file", "data", "_id"], sort=False).ngroup(), task=answers["task"].map(task_name),
        accepted=answers["answers"].map(" | ".join), failure=answers["failure"].fillna(""))
    files = answers.groupby(["file", "data"], sort=False).ngroup()
    return answers.assign(files=files).sort_values(["files", "asked", "number", "sample"], kind="stable")


def questions_json(asked: pd.DataFrame, results: Sequence[Results], viewers: Mapping[Path, str]) -> str:
    """What the page filters, as text for a script element, long texts cut; ``viewers`` by folder."""
    rows: dict[int, dict[str, Any]] = {}
    for line in asked.itertuples():
        row = rows.setdefault(line.asked, {
            "file": line.file, "id": line.question_id, "text": line.question[:_LONGEST],
            "golds": line.accepted[:_LONGEST], "answers": defaultdict(list)})
        row["answers"][str(line.number)].append({
            "sample": line.sample, "score": round(line.percent, 1), "given": line.prediction[:_LONGEST],
            "failure": f"{line.failure}: {line.failure_message[:_LONGEST]}" if line.failure else ""})
    runs = [{"label": run.label, "viewer": viewers.get(run.folder, ""),
             "kept": [path.stem for path in kept_files(run.folder)]} for run in results]
    return orjson.dumps({"runs": runs, "rows": list(rows.values())}).decode().replace("<", "\\u003c")
