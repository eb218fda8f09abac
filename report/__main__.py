"""Make the report of some result folders: ``mem-agent report RESULTS... [--output DIR]``.

RESULTS are folders of ``mem-agent eval``, or of the sifter's stages with the scores of ``mem-agent sifter-table``; the
page has a section for either.

Writes into DIR (``report`` beside the first result folder unless given):

=====================================  ============================================================================
``index.html``                         everything on one page, nothing loaded from outside
``report.md``                          the same tables in Markdown
``results.csv`` ``memory_by_turn.csv`` the numbers in full precision, with intervals
``*.png``                              the plots
``lm_eval/<run>/results_<time>.json``  each run in the form of lm-evaluation-harness
=====================================  ============================================================================
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..evaluation.results import Results, read_results
from ..evaluation.ruler_average import ruler_lines
from ..evaluation.summary import Summary, differences, main_metric_of, summarise
from ..sifter.table.score_lines import ANSWERS, FILE, RETRIEVAL, read_scores
from ..sifter.table.sifter_table import TITLES
from ..system.atomic_file import write_atomically
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .figures import draw
from .lm_eval_export import export
from .page import render, warnings
from .published import CAVEATS, METRIC, Published, published_comparisons, published_rows
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
from .wording import named

_CARE = "Read with care"


def make_report(folders: Sequence[Path], output: Path, title: str = "", with_published: bool = True) -> Path:
    """Write everything; returns the page's path.

    Raises:
        MemAgentError: a folder is no evaluation's or empty, or ``output`` is a Python package.
    """
    if (output / "__init__.py").exists():
        raise MemAgentError(f"{output} is a folder of source code; give another --output")
    for folder in folders:
        if not (folder / FILE).is_file() and next(folder.glob("*/*_embed.parquet"), None):
            raise MemAgentError(f"{folder}: stages without scores; mem-agent sifter-table {folder} makes them")
    sifted = [(folder.resolve().name, read_scores(folder / FILE)) for folder in folders if (folder / FILE).is_file()]
    evaluated = [folder for folder in folders if not (folder / FILE).is_file()]
    runs = read_results(evaluated) if evaluated else []
    summaries = [summarise(run.label, cell) for run in runs for cell in run.cells]
    published = _published(summaries) if with_published else {}
    plots = (*draw(summaries, published), *sifter_plot(sifted))
    tables = {"sifter": sifter_tables(sifted), **(_tables(runs, summaries, published) if runs else {})}
    warned = [*sifter_warnings(sifted), *warnings(runs, summaries)]
    title = title or "Evaluation of " + named([*(label for label, _ in sifted), *(run.label for run in runs)])
    files = {f"{plot.name}.png": plot.png for plot in plots}
    files["report.md"] = _markdown(title, tables, warned, any(published.values())).encode()
    if runs:
        files["results.csv"] = results_csv(summaries, published).encode()
        files["memory_by_turn.csv"] = turns_csv(summaries).encode()
    for run in runs:
        path, content = export(run)
        files[f"lm_eval/{path}"] = content
    page = render(title, runs, plots, tables, any(published.values()), warned)
    files["index.html"] = page.encode()
    for name, content in files.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output / name, content)
    return output / "index.html"


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


def _tables(
    runs: Sequence[Results], summaries: Sequence[Summary], published: dict[str, list[Published]]
) -> dict[str, list[Table]]:
    by_task = {task: [s for s in summaries if s.task == task] for task in dict.fromkeys(s.task for s in summaries)}
    paired = difference_table(runs[0].label, differences(runs))
    beside = published_comparison_tables(published_comparisons(summaries)) if published else []
    return {
        "standing": [headline_table(summaries), *beside],
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


def _markdown(title: str, tables: dict[str, list[Table]], warned: Sequence[str], with_published: bool) -> str:
    parts = [f"# {title}\n", *([markdown(_list(_CARE, warned))] if warned else [])]
    parts += [markdown(table) for section in tables.values() for table in section]
    parts += [markdown(_list("Published numbers", CAVEATS))] if with_published else []
    return "\n".join(parts)


def _list(title: str, lines: Sequence[str]) -> Table:
    return Table(title, ("to know",), tuple((line,) for line in lines))


@one_line_errors("the same command makes the report")
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent report", description="Make the report of evaluations.")
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="result folders; first is the base")
    parser.add_argument("--output", type=Path, help="folder to write (default: `report` beside the first results)")
    parser.add_argument("--title", default="", help="heading of the page")
    parser.add_argument("--no-published", action="store_true", help="without published reference rows")
    options = parser.parse_args(arguments)
    output = options.output or options.results[0].resolve().parent / "report"
    page = make_report(options.results, output, options.title, not options.no_published)
    sections = (output / "report.md").read_text().split("\n### ")
    for section in sections:
        if section.startswith((_CARE, HEADLINE, f"{TITLES[RETRIEVAL]}\n", f"{TITLES[ANSWERS]}\n")):
            print(section.partition("\n")[2].strip(), end="\n\n")
    print(page)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
