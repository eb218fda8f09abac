"""``mem-agent card MODEL``: what evaluation found, into the card beside a model's weights; and the model to the hub.

    mem-agent card runs/mine/hf/iter_0000099 --results runs/mine/eval/before runs/mine/eval/after-iter_0000099
    mem-agent card runs/mine/hf/iter_0000099 --push-to-hub ORG/NAME

The last result folder is the model's own; the table shows all, and the card's head gets the last one's numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult

from ..checkpoints.model_card import CARD, add_push_arguments, push, read_card, with_evaluation, write_card
from ..system.one_line_errors import one_line_errors
from ..system.text import markdown_table
from .results import read_results
from .summary import Summary, main_metric_of, summarise


def evaluation_table(summaries: Sequence[Summary]) -> str:
    """One line per run and file of questions: the share of right answers in percent, with its interval."""
    rows = []
    for summary in summaries:
        metric = main_metric_of([summary])
        score = summary.scores[metric] if metric else None
        found = f"{score.mean:.1f} ({score.low:.1f} to {score.high:.1f})" if score else "-"
        data = f"`{summary.data[:16]}`"
        rows.append([summary.run, summary.name, summary.questions, summary.failed, metric or "-", found, data])
    header = ["run", "questions of", "n", "failed", "metric", "percent (95% interval)", "data"]
    note = ("Intervals are bootstrap over questions; failed questions count as wrong; `data` is the beginning of the "
            "SHA-256 of the questions.")
    return f"{markdown_table(header, rows, ('run', 'questions of', 'metric', 'data'))}\n\n{note}"


def eval_results(summaries: Sequence[Summary]) -> list[EvalResult]:
    """The main score of each file of questions, as the hub shows it."""
    found = [(summary, main_metric_of([summary])) for summary in summaries]
    return [
        EvalResult(
            task_type="question-answering", dataset_type=f"mem-agent-{summary.data[:16]}", dataset_name=summary.name,
            metric_type=metric, metric_value=round(summary.scores[metric].mean, 2),
            metric_name=f"{metric}, percent of {summary.questions} questions",
        )
        for summary, metric in found if metric
    ]


def add_evaluation(model: Path, folders: Sequence[Path]) -> None:
    """Raises EvalError where a folder has no results, MemAgentError where the model has no card."""
    results = read_results(folders)
    summaries = {r.folder: [summarise(r.label, cell) for cell in r.cells] for r in results}
    own = summaries[results[-1].folder]
    table = evaluation_table([summary for found in summaries.values() for summary in found])
    write_card(model, with_evaluation(read_card(model), table, eval_results(own), model / CARD))


@one_line_errors("the model is as it was")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent card", description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="Hugging Face folder that mem-agent convert has written")
    parser.add_argument("--results", type=Path, nargs="+", default=[], help="result folders, the model's own last")
    add_push_arguments(parser)
    options = parser.parse_args(argv)
    if not options.results and not options.push_to_hub:
        parser.error("nothing to do: give --results, --push-to-hub, or both")
    read_card(options.model)
    if options.results:
        add_evaluation(options.model, options.results)
        print(f"{options.model / 'README.md'}: evaluation of {', '.join(str(folder) for folder in options.results)}")
    if options.push_to_hub:
        print(f"pushed to {push(options.model, options.push_to_hub, private=options.private)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
