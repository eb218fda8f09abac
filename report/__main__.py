"""Make the report of training runs and result folders: ``mem-agent report RUN_OR_RESULTS... [--output DIR]``.

RUN is a folder with ``metrics.jsonl`` (SAVE_PATH of the embedded host): its curves, and the evaluations in its
``eval/``. RESULTS are folders of ``mem-agent eval``, or of the sifter's stages with the scores of ``mem-agent
sifter-table``. The page has a section for each.

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
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from ..hooks.traces import kept_files
from ..system.cli import one_line_errors, run_main
from ..system.files import write_atomically
from .data import PUBLISHED, read_material, results_csv
from .page import QUESTIONS, headlines, provenance, questions_json, questions_of, render, warnings
from .plots import plots_of
from .tables import shorten, tables_of
from .viewer.page import FILE as VIEWER
from .viewer.page import write_viewer


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
    caveats = PUBLISHED["caveats"] if tables["published"] else []
    asked = questions_of(material.answers)

    files = {f"{plot.name}.png": plot.png for plot in plots}
    if results:
        files["results.csv"] = results_csv(material.frame).encode()
        files["questions.csv"] = asked[QUESTIONS].to_csv(index=False, lineterminator="\n").encode()
    files["index.html"] = render(
        Path(__file__).parent, "page.html.jinja", title=title, headlines=said, warnings=warned, tables=tables,
        plots={plot.name: plot for plot in plots}, training=[(run.label, viewers.get(run.folder)) for run in trained],
        provenance=[provenance(run) for run in results], files=list(asked["file"].unique()),
        questions=questions_json(asked, results, viewers), linked=any(run.folder in viewers for run in results),
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


if __name__ == "__main__":
    run_main(main)
