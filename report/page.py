"""Make the report of training runs and result folders: ``mem-agent report RUN_OR_RESULTS... [--output DIR]``.

RUN is a folder with ``metrics.jsonl`` (SAVE_PATH of the embedded host): its curves, and the evaluations in its
``eval/``. RESULTS are folders of ``mem-agent eval``, or of the sifter's stages. The page has a section for each.

Writes into DIR (``report`` in the first folder, unless given):

=====================================  ============================================================================
``index.html``                         everything on one page, nothing loaded from outside
``view*.html``                         with ``--viewer``: the trajectories, which the page links into
``report.md``                          the same tables in Markdown
``results.csv``                        the numbers in full precision, with intervals
``questions.csv``                      every answer with its score
``*.png``                              the plots
=====================================  ============================================================================
"""

from __future__ import annotations

import argparse
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
import pandas as pd

from ..evaluation.results import Results
from ..evaluation.statistics import interval
from ..evaluation.summary import cells_of, differences, mean_by_question, over_files
from ..hooks.traces import kept_files
from ..system.cli import one_line_errors
from ..system.files import write_atomically
from .data import PUBLISHED, Material, read_material, results_csv, task_name
from .plots import plots_of
from .tables import TEXTS, model_of, reading_of, render, shorten, tables_of
from .viewer.page import FILE as VIEWER
from .viewer.page import write_viewer

QUESTIONS = ["file", "task", "question_id", "question", "accepted", "run", "sample", "metric", "percent",
             "prediction", "failure"]
"""Columns of ``questions.csv``."""
_LONGEST = 300
"""Characters of a text in the table of questions; ``questions.csv`` has it all."""


def make_report(folders: Sequence[Path], output: Path, viewer: bool = False) -> str:
    """Write everything; returns what the command prints, in Markdown: headlines, warnings, and the first tables.

    Raises:
        MemAgentError: a folder is neither run nor results, is empty, or is damaged.
    """
    material = read_material(folders)
    trained, results = material.trained, material.results
    tables, plots = tables_of(material), plots_of(material)
    labels = {run.folder: run.label for run in trained} | {run.folder: run.label for run in results}
    viewers = _viewers(labels, output, write=viewer)
    shown = [run.label for run in trained] or [*material.sifted, *(run.label for run in results)]
    title = f"{'Training' if trained else 'Evaluation'} of {', '.join(map(shorten, shown))}"
    said, warned = list(headlines(material)), warnings(material)
    beside = set(material.frame.loc[material.frame["kind"] == "published", "data"])
    caveats = list(dict.fromkeys(
        line for name, group in PUBLISHED["data_sets"].items() if name in beside for line in group["caveats"]))
    asked = questions_of(material.answers)

    files = {f"{plot.name}.png": plot.png for plot in plots}
    if results:
        files["results.csv"] = results_csv(material.frame).encode()
        files["questions.csv"] = asked[QUESTIONS].to_csv(index=False, lineterminator="\n").encode()
    files["index.html"] = render(
        Path(__file__).parent, "page.html.jinja", title=title, headlines=said, warnings=warned, tables=tables,
        plots={plot.name: plot for plot in plots}, training=[(run.label, viewers.get(run.folder)) for run in trained],
        provenance=[(run, *model_of(run), _texts(run.run.settings)) for run in results],
        files=list(asked["file"].unique()), questions=questions_json(asked, results, viewers),
        linked=any(run.folder in viewers for run in results),
        caveats=caveats,
    ).encode()
    begin = "\n".join([f"# {title}", *(f"\n**{one.number}** {one.sentence}" for one in said), "",
                       *(f"- {line}" for line in warned), ""])
    every = [table.markdown() for found in tables.values() for table in found]
    files["report.md"] = "\n".join([escape(begin), *every, *(f"- {line}" for line in caveats), ""]).encode()
    output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(output / name, content)
    return "\n".join([begin, *(table.markdown() for table in (*tables["sifter"], *tables["standing"][:1]))])


def _viewers(labels: Mapping[Path, str], output: Path, *, write: bool) -> dict[Path, str]:
    """The address of each folder's page of trajectories, as seen from the report in ``output``: one
    beside it, which ``write`` makes so that the report can be moved as a whole, else the folder's own ``view.html``.

    Raises:
        TraceError: pages are to be written, and no folder has trajectories.
    """
    beside = {folder: output / f"view_{re.sub(r'[^A-Za-z0-9.-]+', '-', label).strip('-')}.html"
              for folder, label in labels.items()}
    for folder in ([path for path in labels if kept_files(path)] or labels) if write else ():
        write_viewer(folder, beside[folder])
    return {folder: quote(os.path.relpath(page, output.resolve()))
            for folder in labels for page in (folder / VIEWER, beside[folder].resolve()) if page.is_file()}


def _texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else orjson.dumps(value).decode())
            for name, value in settings.items()]


# --- in words -------------------------------------------------------------------------------------------------------


def warnings(material: Material) -> list[str]:
    """What makes the numbers of this report less than they seem."""
    found = [note for scores in material.sifted.values() for note in scores.notes]
    by_file: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, file, lines, _ in cells_of(material.summary):
        rows, said = lines["rows"], []
        by_file[file][rows.data].append(shorten(run))
        if not rows.mean:
            said.append("empty")
        elif lines["missing"].mean:
            said.append("missing")
        if "not_read" in lines and lines["not_read"].mean > 0:
            said.append("not_read")
        where = f"{run}, {task_name(rows.task)}, {rows.length}: "
        found += [where + TEXTS["warnings"][name].format(**lines) for name in said]
    unlike: dict[str, list[str]] = defaultdict(list)
    for name, groups in by_file.items():
        if len(groups) > 1:
            unlike[" | ".join(map(", ".join, groups.values()))].append(name)
    apart = TEXTS["warnings"]["unlike"]
    return [*(apart.format(files=", ".join(same), groups=groups) for groups, same in unlike.items()), *found]


class Headline(NamedTuple):
    """What a reader takes away: one number and one sentence for each comparison, or for the only run."""

    number: str
    sentence: str
    reading: str = ""
    """Of a comparison: ``better`` or ``worse`` where the 95% interval leaves 0 out."""


def headlines(material: Material) -> Iterator[Headline]:
    """Each evaluation against the first one, or, without answers, the last of each file against its first; how rewards
    moved only where nothing was evaluated."""
    labels, sentences = [shorten(result.label) for result in material.results], TEXTS["headlines"]
    for run in material.trained if not labels else ():
        points = material.points[material.points["run"] == run.label]
        for file, own in points.groupby("file", sort=False):
            if len(own) < 2:
                continue
            first, last = own.iloc[0], own.iloc[-1]
            yield Headline(f"{last['mean'] - first['mean']:+z.1f}", sentences["evaluated"].format(
                run=shorten(run.label), file=file, metric=first["metric"], first=first, last=last))
        if not len(points) and (ends := run.first_and_last("reward")):
            first, last, count = ends
            said = sentences["trained"].format(
                run=shorten(run.label), first=first, last=last, count=count, rollouts=len(run.rollouts))
            yield Headline(f"{last - first:+z.3f}", said)
    if len(labels) == 1:
        for metric, part in mean_by_question(material.answers).groupby(level="metric", sort=False):
            found = interval(over_files(part), full=100.0)
            over = _over(found.n, part.index.unique("file"))
            yield Headline(f"{found.mean:.1f}%", sentences["one"].format(
                run=labels[0], metric=metric, found=found, over=over))
    for label, later in zip(labels[1:], material.results[1:], strict=True):
        compared = differences(material.answers, material.results[0].label, later.label, ["metric"])
        for each in compared:
            points = each.found.difference
            yield Headline(f"{points.mean:+z.1f}", sentences["against"].format(
                run=label, base=labels[0], reading=reading_of(points), found=each.found, points=points,
                metric=each.metric, over=_over(points.n, each.files)), reading_of(points))
        if not compared:
            yield Headline("–", sentences["apart"].format(run=label, base=labels[0]))


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


# --- the command --------------------------------------------------------------------------------------------------


@one_line_errors("the same command makes the report")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent report", description="Make the report of runs and evaluations.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_OR_RESULTS",
                        help="training runs and result folders; the first results are the base of comparisons")
    parser.add_argument("--output", type=Path, help="folder to write (default: `report` in the first folder)")
    parser.add_argument("--viewer", action="store_true", help="write the trajectories' page, too, and link into it")
    options = parser.parse_args(arguments)
    output = options.output or options.folders[0] / "report"
    print(make_report(options.folders, output, options.viewer))
    print(output / "index.html")
    return 0
