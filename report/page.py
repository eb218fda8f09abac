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

from ..evaluation.results import Results, Row
from ..evaluation.summary import main_metric, overall, overall_differences, shared_metrics
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
    for s in material.summaries:
        by_file[s.name][s.data].append(shorten(s.run))
        where = f"{s.run}, {task_name(s.task)}, {s.length}"
        if not s.rows:
            found.append(f"{where}: no rows yet.")
        elif s.missing:
            found.append(f"{where}: {s.missing} answers are missing; its means are over the {s.rows} that are there.")
        if s.not_read and s.not_read.mean > 0:
            found.append(f"{where}: {s.not_read.mean:.1f}% of its documents' tokens were not read.")
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
        "data": ", ".join(f"{cell.name}: {cell.data}" for cell in run.cells),
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


def headlines(results: Sequence[Results], trained: Sequence[TrainingRun]) -> Iterator[Headline]:
    """Each evaluation against the first one; how rewards moved only where nothing was evaluated."""
    for run in trained if not results else ():
        if ends := run.first_and_last("reward"):
            first, last, count = ends
            yield Headline(f"{last - first:+z.3f}", (
                f"{shorten(run.label)}: mean reward {first:.3f} in the first {count} of {len(run.rollouts)} rollouts, "
                f"{last:.3f} in the last {count}. Rollouts have other questions each, and nothing was evaluated: no "
                "interval."))
    for each in overall(results[0].cells) if len(results) == 1 else ():
        yield Headline(f"{each.found.mean:.1f}%", (
            f"{shorten(results[0].label)}: {each.metric} {each.found.mean:.1f}% with a 95% interval of "
            f"{each.found.low:.1f} to {each.found.high:.1f}; {_over(each.found.n, each.cells)}."))
    for later in results[1:]:
        yield from _against(results[0], later)


def _against(base: Results, run: Results) -> Iterator[Headline]:
    first, this = shorten(base.label), shorten(run.label)
    differences = overall_differences(base, run)
    if not differences:
        yield Headline("–", f"{this} and {first} have no answers to the same data: shown together, and not compared.")
    for each in differences:
        found, points = each.found, each.found.difference
        yield Headline(f"{points.mean:+z.1f}", (
            f"{this} against {first}: {reading_of(points)}, {found.first:.1f}% to {found.second:.1f}% in "
            f"{each.metric}, {points.mean:+z.1f} points with a 95% interval of {points.low:+z.1f} to "
            f"{points.high:+z.1f}, p {found.p_text}; {_over(points.n, each.cells)}."), reading_of(points))


def _over(count: int, cells: Sequence[str]) -> str:
    questions = f"{count:,} question{'s' * (count != 1)}"
    return f"{questions}, each averaged over the {len(cells)} files it is in" if len(cells) > 1 else questions


# --- every question -----------------------------------------------------------------------------------------------


def answers_of(results: Sequence[Results]) -> pd.DataFrame:
    """One line for each answer, question by question as they were first answered, judged by its task's metric. Runs
    stand beside each other only where the file of questions is the same."""
    rows: dict[tuple[str, str], list[tuple[int, Row]]] = defaultdict(list)
    for number, run in enumerate(results):
        for cell in run.cells:
            rows[cell.name, cell.data] += [(number, row) for row in cell.rows]
    lines = []
    for (file, data), found in rows.items():
        metric = main_metric(shared_metrics([row for _, row in found]))
        lines += [
            (file, task_name(row.task), row.question, row.text, " | ".join(row.answers), results[number].label,
             row.sample, metric, 100 * row.scores[metric], row.prediction, row.failure or "", data, number,
             row.failure_message or "")
            for number, row in found if metric]
    frame = pd.DataFrame(lines, columns=[*QUESTIONS, "data", "number", "message"])
    asked = frame.groupby(["file", "data", "question_id"], sort=False).ngroup()
    return frame.assign(asked=asked).sort_values(["asked", "number", "sample"], kind="stable")


def questions_json(answers: pd.DataFrame, results: Sequence[Results], viewers: Mapping[Path, str]) -> str:
    """What the page filters, as text for a script element, long texts cut; ``viewers`` by folder."""
    rows: dict[int, dict[str, Any]] = {}
    for line in answers.itertuples():
        row = rows.setdefault(line.asked, {
            "file": line.file, "id": line.question_id, "text": line.question[:_LONGEST],
            "golds": line.accepted[:_LONGEST], "answers": defaultdict(list)})
        row["answers"][str(line.number)].append({
            "sample": line.sample, "score": round(line.percent, 1), "given": line.prediction[:_LONGEST],
            "failure": f"{line.failure}: {line.message[:_LONGEST]}" if line.failure else ""})
    runs = [{"label": run.label, "viewer": viewers.get(run.folder, ""),
             "kept": [path.stem for path in kept_files(run.folder)]} for run in results]
    return orjson.dumps({"runs": runs, "rows": list(rows.values())}).decode().replace("<", "\\u003c")
