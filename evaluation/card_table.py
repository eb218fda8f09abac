"""``mem-agent card MODEL``: what evaluation found, into the card beside a model's weights; and the model to the hub.

    mem-agent card runs/mine/hf/iter_0000099 --results runs/mine/eval/before runs/mine/eval/after-iter_0000099
    mem-agent card runs/mine/hf/iter_0000099 --push-to-hub ORG/NAME

The last result folder is the model's own; the table shows all, and the card's head gets the last one's numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import EvalResult

from ..checkpoints.model_card import CARD, add_push_arguments, push, read_card, with_evaluation, write_card
from ..system.cli import one_line_errors
from ..system.text import markdown_table
from .results import read_results
from .summary import cells_of, summary_of

_HEADER = ("run", "questions of", "n", "failed", "metric", "percent (95% interval)", "data")
_NOTE = ("Intervals are bootstrap over questions; failed questions count as wrong; `data` is the beginning of the "
         "SHA-256 of the questions.")


def add_evaluation(model: Path, folders: Sequence[Path]) -> None:
    """Raises EvalError where a folder has no results, MemAgentError where the model has no card."""
    rows: list[tuple[object, ...]] = []
    own: list[EvalResult] = []
    results = read_results(folders)
    for run, file, lines, score in cells_of(summary_of(results)):
        if not score:
            continue
        data, questions, failed = score.data[:16], int(lines["questions"].mean), int(lines["failed"].mean)
        rows.append((run, file, questions, failed, score.metric,
                     f"{score.mean:.1f} ({score.low:.1f} to {score.high:.1f})", f"`{data}`"))
        if run == results[-1].label:
            own.append(EvalResult(
                task_type="question-answering", dataset_type=f"mem-agent-{data}", dataset_name=file,
                metric_type=score.metric, metric_value=round(score.mean, 2),
                metric_name=f"{score.metric}, percent of {questions} questions"))
    table = markdown_table(_HEADER, rows, ("run", "questions of", "metric", "data"))
    write_card(model, with_evaluation(read_card(model), f"{table}\n\n{_NOTE}", own, model / CARD))


@one_line_errors("the model is as it was")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent card", description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="Hugging Face folder that mem-agent convert has written")
    parser.add_argument("--results", type=Path, nargs="+", default=[], help="result folders, the model's own last")
    add_push_arguments(parser)
    options = parser.parse_args(argv)
    if not options.results and not options.push_to_hub:
        parser.error("nothing to do: give --results, --push-to-hub, or both")
    if options.results:
        add_evaluation(options.model, options.results)
        print(f"{options.model / CARD}: evaluation of {', '.join(map(str, options.results))}")
    if options.push_to_hub:
        print(f"pushed to {push(options.model, options.push_to_hub, private=options.private)}")
    return 0
