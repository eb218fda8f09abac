"""Make the report of training runs and result folders: ``mem-agent report RUN_OR_RESULTS... [--output DIR]``.

RUN is a folder with ``metrics.jsonl`` (SAVE_PATH of the embedded host): its curves, and the evaluations in its
``eval/``. RESULTS are folders of ``mem-agent eval``, or of the sifter's stages with the scores of ``mem-agent
sifter-table``. The page has a section for each.

Writes into DIR (``report`` beside the first result folder, or in the first run, unless given):

=====================================  ============================================================================
``index.html``                         everything on one page, nothing loaded from outside
``view*.html``                         with ``--viewer``: the trajectories, which the page links into
``report.md``                          the same tables in Markdown
``results.csv`` ``memory_by_turn.csv`` the numbers in full precision, with intervals
``questions.csv``                      every answer with its score
``*.png``                              the plots
=====================================  ============================================================================
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from html import unescape
from pathlib import Path

from ..evaluation.results import Results, read_results
from ..evaluation.ruler_average import ruler_lines
from ..evaluation.summary import Summary, differences, main_metric_of, summarise
from ..memsifter.table import ANSWERS, RETRIEVAL, TITLES
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from ..system.text import markdown_cell
from .figures import draw
from .given import Given, sorted_out
from .headline import Headline, headlines
from .page import Content, render, warnings
from .published import CAVEATS, METRIC, Published, published_comparisons, published_rows
from .questions import question_rows, questions_csv
from .ruler import ruler_tables
from .sifter import sifter_plot, sifter_tables, sifter_warnings
from .tables import (
    HEADLINE,
    Table,
    accuracy_table,
    agent_table,
    costs_table,
    difference_table,
    headline_table,
    markdown,
    pass_table,
    published_comparison_tables,
    results_csv,
    scores_table,
    sources_table,
    turns_csv,
)
from .training_figures import draw_training
from .training_run import is_training_run, points_of
from .training_tables import training_tables
from .viewer_pages import linked_pages
from .wording import model_title, named

_CARE = "Read with care"


def make_report(
    folders: Sequence[Path], output: Path, title: str = "", with_published: bool = True, viewer: bool = False
) -> Path:
    """Write everything; returns the page's path.

    Raises:
        MemAgentError: a folder is neither run nor results or empty, or ``output`` is a Python package.
    """
    if (output / "__init__.py").exists():
        raise MemAgentError(f"{output} is a folder of source code; give another --output")
    given = sorted_out(folders)
    runs = read_results(given.results) if given.results else ()
    evaluated = (*read_results(given.between), *runs)
    points = [points_of(run, evaluated) for run in given.trained]
    summaries = [summarise(run.label, cell) for run in runs for cell in run.cells]
    published = _published(summaries) if with_published else {}
    labels = {run.folder: run.label for run in given.trained} | {run.folder: run.label for run in runs}
    content = Content(
        title=title or _title(given, runs),
        headlines=headlines(runs, given.trained),
        runs=runs, trained=given.trained,
        plots=(*draw_training(given.trained, points), *draw(summaries, published), *sifter_plot(given.sifted)),
        tables={"training": training_tables(given.trained, points), "sifter": sifter_tables(given.sifted)}
        | (_evaluation_tables(runs, summaries, published) if runs else {}),
        questions=question_rows(runs),
        viewers=linked_pages(labels, output, write=viewer),
        with_published=any(published.values()),
        warned=[*sifter_warnings(given.sifted), *warnings(runs, summaries)],
    )
    files = {f"{plot.name}.png": plot.png for plot in content.plots}
    files["report.md"] = _markdown(content).encode()
    if runs:
        files["results.csv"] = results_csv(summaries, published).encode()
        files["memory_by_turn.csv"] = turns_csv(summaries).encode()
        files["questions.csv"] = questions_csv(content.questions, runs).encode()
    files["index.html"] = render(content).encode()
    output.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_atomically(output / name, data)
    return output / "index.html"


def _title(given: Given, runs: Sequence[Results]) -> str:
    evaluated = [*(label for label, _ in given.sifted), *(run.label for run in runs)]
    if given.trained:
        return f"Training of {named(run.label for run in given.trained)}"
    return "Evaluation of " + named(evaluated)


def _published(summaries: Sequence[Summary]) -> dict[str, list[Published]]:
    """By task, the published rows that share a length with a run that has the published metric."""
    lengths: dict[str, set[str]] = {summary.task: set() for summary in summaries}
    for summary in summaries:
        if METRIC in summary.scores:
            lengths[summary.task].add(summary.length)
    return {
        task: [row for row in published_rows(task) if not found.isdisjoint(row.accuracy)]
        for task, found in lengths.items()
    }


def _evaluation_tables(
    runs: Sequence[Results], summaries: Sequence[Summary], published: dict[str, list[Published]]
) -> dict[str, list[Table]]:
    models = {run.label: model_title(run) for run in runs}
    by_task: dict[str, list[Summary]] = defaultdict(list)
    for s in summaries:
        by_task[s.task].append(s)
    paired = difference_table(runs[0].label, differences(runs))
    beside = published_comparison_tables(published_comparisons(summaries)) if published else []
    return {
        "standing": [headline_table(summaries, models), *beside],
        "published": [
            table
            for task, rows in published.items() if rows
            for table in (accuracy_table(by_task[task], METRIC, rows), sources_table(rows))
        ],
        "accuracy": ruler_tables(ruler_lines(summaries), bool(published)) + [
            accuracy_table(cells, metric) for cells in by_task.values() if (metric := main_metric_of(cells))
        ] + [table for table in (pass_table(summaries),) if table],
        "paired": [scores_table(summaries), *([paired] if paired else [])],
        "cost": [table for table in (costs_table(summaries), agent_table(summaries)) if table],
    }


def _markdown(content: Content) -> str:
    parts = [f"# {markdown_cell(content.title)}\n", *map(_said, content.headlines)]
    parts += [markdown(_list(_CARE, content.warned))] if content.warned else []
    parts += [markdown(table) for section in content.tables.values() for table in section]
    parts += [markdown(_list("Published numbers", CAVEATS))] if content.with_published else []
    return "\n".join(parts)


def _said(line: Headline) -> str:
    return f"**{line.number}** {markdown_cell(line.sentence)}\n"


def _list(title: str, lines: Sequence[str]) -> Table:
    return Table(title, ("to know",), tuple((line,) for line in lines))


@one_line_errors("the same command makes the report")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent report", description="Make the report of runs and evaluations.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN_OR_RESULTS",
                        help="training runs and result folders; the first results are the base of comparisons")
    parser.add_argument("--output", type=Path,
                        help="folder to write (default: `report` beside the first results, or in the first run)")
    parser.add_argument("--title", default="", help="heading of the page")
    parser.add_argument("--no-published", action="store_true", help="without published reference rows")
    parser.add_argument("--viewer", action="store_true", help="write the trajectories' page, too, and link into it")
    options = parser.parse_args(arguments)
    first = options.folders[0].resolve()
    output = options.output or (first if is_training_run(first) else first.parent) / "report"
    page = make_report(options.folders, output, options.title, not options.no_published, options.viewer)
    sections = (output / "report.md").read_text(encoding="utf-8").split("\n### ")
    print(unescape(sections[0]).strip(), end="\n\n")
    for section in sections[1:]:
        if section.startswith((_CARE, HEADLINE, f"{TITLES[RETRIEVAL]}\n", f"{TITLES[ANSWERS]}\n")):
            print(section.partition("\n")[2].strip(), end="\n\n")
    print(str(page))
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
