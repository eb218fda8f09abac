"""Make the report of training runs and result folders: ``mem-agent report RUN_OR_RESULTS... [--output DIR]``.

RUN is a folder with ``metrics.jsonl`` (SAVE_PATH of the embedded host): its curves, and the evaluations in its
``eval/``. RESULTS are folders of ``mem-agent eval``, or of the sifter's stages with the scores of ``mem-agent
sifter-table``. The page has a section for each.

Writes into DIR (``report`` beside the first result folder, or in the first run, unless given):

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
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from ..evaluation.results import read_results
from ..evaluation.summary import differences, summarise
from ..hooks.traces import kept_files
from ..memsifter.table import FILE, TITLES, SifterScores, read_scores
from ..system.cli import one_line_errors, run_main
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.text import markdown_cell
from .data import evaluations_of, frame_of, is_training_run, points_of, read_training_runs, results_csv
from .page import headlines, provenance, render, warnings
from .plots import evaluation_plots, training_plots
from .published import CAVEATS, published_beside, published_frame
from .questions import answers_of, questions_csv, questions_json
from .sifter import sifter_plot, sifter_tables
from .tables import HEADLINE, Table, difference_table, evaluation_tables, model_title, shorten, training_tables
from .viewer.page import FILE as VIEWER
from .viewer.page import write_viewer


def make_report(folders: Sequence[Path], output: Path, viewer: bool = False) -> str:
    """Write everything; returns what the command prints, in Markdown.

    Raises:
        MemAgentError: a folder is neither run nor results or empty, or ``output`` is a Python package.
    """
    if (output / "__init__.py").exists():
        raise MemAgentError(f"{output} is a folder of source code; give another --output")
    sifted = _sifted(folders)
    trained = read_training_runs(list(dict.fromkeys(path.resolve() for path in folders if is_training_run(path))))
    kept = [evaluations_of(run.folder) for run in trained]
    known = {run.folder for run in trained} | {path for compared, _ in kept for path in compared}
    named = [path for path in folders if path not in sifted and path.resolve() not in known]
    between = [path for _, own in kept for path in own if path not in {path.resolve() for path in named}]
    compared = [*(path for own, _ in kept for path in own), *named]
    runs = read_results(compared) if compared else ()
    evaluated = [(run, [summarise(run.label, cell) for cell in run.cells]) for run in (*read_results(between), *runs)]
    points = [points_of(run, evaluated) for run in trained]
    summaries = [summary for _, found in evaluated[len(between) :] for summary in found]

    ours = frame_of(summaries)
    beside = published_beside(ours)
    frame = pd.concat([ours, published_frame(beside)], ignore_index=True)
    tables = {"training": training_tables(trained, points), "sifter": sifter_tables([*sifted.values()])}
    if runs:
        tables |= evaluation_tables(frame, {run.label: model_title(run) for run in runs}, beside)
        tables["paired"] += difference_table(runs[0].label, differences(runs))
    plots = [*training_plots(trained, points), *evaluation_plots(ours, beside), *sifter_plot([*sifted.values()])]
    warned = [*(note for _, scores in sifted.values() for note in scores.notes), *warnings(runs, summaries)]
    labels = {run.folder: run.label for run in trained} | {run.folder: run.label for run in runs}
    viewers = _viewers(labels, output, write=viewer)
    answers = answers_of(runs)
    shown = [run.label for run in trained] or [*(label for label, _ in sifted.values()), *(run.label for run in runs)]
    title = f"{'Training' if trained else 'Evaluation'} of {', '.join(map(shorten, shown))}"
    lines, caveats = headlines(runs, trained), CAVEATS if beside else ()

    files = {f"{plot.name}.png": plot.png for plot in plots}
    if runs:
        files |= {"results.csv": results_csv(frame).encode(), "questions.csv": questions_csv(answers).encode()}
    files["index.html"] = render(
        Path(__file__).parent, "page.html.jinja", title=title, headlines=lines, warnings=warned, tables=tables,
        plots={plot.name: plot for plot in plots}, training=[(run.label, viewers.get(run.folder)) for run in trained],
        provenance=[provenance(run) for run in runs], files=list(answers["file"].unique()),
        questions=questions_json(answers, runs, viewers), linked=any(run.folder in viewers for run in runs),
        caveats=caveats,
    ).encode()
    begin = [f"# {markdown_cell(title)}\n", *(f"**{one.number}** {markdown_cell(one.sentence)}\n" for one in lines)]
    begin += [_listed("Read with care", warned).markdown()] if warned else []
    every = [table for found in tables.values() for table in found]
    every += [_listed("Published numbers", caveats)] if caveats else []
    files["report.md"] = "\n".join([*begin, *(table.markdown() for table in every)]).encode()
    output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(output / name, content)
    printed = [table for table in every if table.title in (HEADLINE, *TITLES.values())]
    return unescape("\n".join([*begin, *(table.markdown().partition("\n\n")[2] for table in printed)]))


def _sifted(folders: Sequence[Path]) -> dict[Path, tuple[str, SifterScores]]:
    """The scores of the sifter's stages, with the folder's name. Raises MemAgentError where stages have none."""
    found = {folder: (folder.resolve().name, read_scores(folder / FILE)) for folder in folders
             if (folder / FILE).is_file()}
    for folder in folders:
        if folder not in found and any(folder.glob("*/*_embed.parquet")):
            raise MemAgentError(f"{folder}: stages without scores; mem-agent sifter-table {folder} makes them")
    return found


def _listed(title: str, lines: Sequence[str]) -> Table:
    return Table(title, ("to know",), [(line,) for line in lines])


def _viewers(labels: Mapping[Path, str], output: Path, *, write: bool) -> dict[Path, str]:
    """The address of each folder's page of trajectories, as seen from the report in ``output``: one
    beside it, which ``write`` makes so that the report can be moved as a whole, else the folder's own ``view.html``.

    Raises:
        MemAgentError: pages are to be written, and no folder has trajectories.
    """
    kept = [folder for folder in labels if kept_files(folder)]
    if write and not kept:
        raise MemAgentError(f"no trajectories in {', '.join(map(str, labels))}; evaluate and train with "
                            "KEEP_TRAJECTORIES above 0, or leave --viewer out")
    found: dict[Path, str] = {}
    for folder in kept:
        slug = re.sub(r"[^A-Za-z0-9.-]+", "-", labels[folder]).strip("-")
        beside = output / f"view_{slug}.html"
        if write:
            write_viewer(folder, beside)
        for page in (folder / VIEWER, beside):
            if page.is_file():
                found[folder] = quote(os.path.relpath(page.resolve(), output.resolve()))
    return found


@one_line_errors("the same command makes the report")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent report", description="Make the report of runs and evaluations.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_OR_RESULTS",
                        help="training runs and result folders; the first results are the base of comparisons")
    parser.add_argument("--output", type=Path,
                        help="folder to write (default: `report` beside the first results, or in the first run)")
    parser.add_argument("--viewer", action="store_true", help="write the trajectories' page, too, and link into it")
    options = parser.parse_args(arguments)
    first = options.folders[0].resolve()
    output = options.output or (first if is_training_run(first) else first.parent) / "report"
    print(make_report(options.folders, output, options.viewer))
    print(output / "index.html")
    return 0


if __name__ == "__main__":
    run_main(main)
