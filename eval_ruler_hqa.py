"""Evaluate a memory agent on RULER-HQA and RULER files: one question, one long document, all accepted answers.

    mem-agent eval --data-root DATA --length "50 200" --model HF_FOLDER --url http://HOST:PORT --output results/NAME
    mem-agent eval --table results/before results/after
    mem-agent eval --compare results/before results/after

Reads ``DATA/eval_<length>.json`` (``evaluation.questions``). Every question runs through the very hook that training
uses (``rollout.generate``), or with EVAL_MODE=direct or rag through one prompt. Without ``--url`` the server at
BASE_URL is asked.

Invariants:
- every question asked has a row; a failed one counts as wrong in every mean and is listed by reason; one that was not
  asked yet is counted as missing in the table;
- a row is on disk as soon as it is known; a second run does only what is missing, and retries what failed;
- rows made from other data, another model or other settings are never mixed in, nor compared: the run refuses.

``OUTPUT/<length>.jsonl`` holds the rows, ``OUTPUT/run.json`` what they were made from (``evaluation.results``).
"""

from __future__ import annotations

if not __package__:
    from _bootstrap import run_in_package

    run_in_package(__file__)

import argparse
import logging
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import orjson

from .checkpoints.hf_model import config_for_model, local_folder
from .config import Config, ConfigError
from .evaluation.means import means
from .evaluation.questions import EvalError, load_questions
from .evaluation.reading import unasked_form
from .evaluation.run import check, engine_config, run
from .evaluation.tables import comparison, failures, table, tables, unread
from .system.files import write_atomically
from .system.logging_setup import log_to_terminal
from .system.one_line_errors import one_line_errors
from .system.signals import stop_on_signals
from .system.text import one_line

__all__ = ["EvalError", "load_questions", "main", "run", "table"]

FINISHED_WITH_FAILURES = 3
"""Exit code when every question has a row, but some of them failed; 1 is an error that ended the evaluation."""


_READS_MORE = {
    "recurrent": "raise EVAL_MAX_CHUNKS, or unset it to read all",
    "direct": "they do not fit the server's context length (ENGINE_MAX_LEN)",
    "rag": "passages are chosen by EVAL_TOP_K",
}


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    if options.table:
        print(tables(options.table))
        return 0
    if options.compare:
        print(comparison(*options.compare))
        return 0
    failed = _evaluate(parser, options)
    for line in failed[:20]:
        print(f"failed: {one_line(line, 500)}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} answers failed and count as wrong; run again to retry them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


def _evaluate(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[str]:
    """Check or run; returns the lines about failed answers."""
    for name in ("model", *(() if options.check else ("output",))):
        if getattr(options, name) is None:
            parser.error(f"--{name} is needed")
    config = Config.from_env()
    if not (options.url or config.base_url or options.check):
        parser.error("--url is needed, or BASE_URL")
    data_root = options.data_root or Path(config.data_root or ".")
    lengths = list(dict.fromkeys((options.length or config.length).split()))
    if not lengths:
        raise ConfigError("LENGTH is empty; name the <n> of the eval_<n>.json to evaluate")
    model = local_folder(options.model, "MODEL_PATH")
    config, model_says = config_for_model(model)
    try:
        with redirect_stdout(sys.stderr):  # a user's class may print; run-eval.sh reads the line of --check
            config = engine_config(config, model)
            if warning := unasked_form(config):
                print(f"warning: {warning}", file=sys.stderr)
            missing = (
                check(data_root, lengths, model, config, options.output, options.weights) if options.check else 0
            )
    except ConfigError:
        print(model_says, end="\n" * bool(model_says), file=sys.stderr)  # the setting may be one that nobody set here
        raise
    if options.check:
        print(config.engine_max_len, missing)
        return []
    if model_says:
        print(model_says, file=sys.stderr)
    run(data_root, lengths, model, options.url or "", config, options.output, weights=options.weights)
    if options.means:
        write_atomically(options.means, orjson.dumps(means(options.output)))
    print(tables([options.output]))
    for line in unread(options.output, lengths):
        print(f"warning: {line}; {_READS_MORE[config.eval_mode]}", file=sys.stderr)
    return failures(options.output, lengths)


def _parser() -> argparse.ArgumentParser:
    description = "Evaluate a memory agent on RULER-HQA and RULER files."
    parser = argparse.ArgumentParser(prog="mem-agent eval", description=description)
    parser.add_argument("--table", nargs="+", type=Path, metavar="OUTPUT", help="only print the table of these runs")
    parser.add_argument("--compare", nargs=2, type=Path, metavar="OUTPUT", help="only print second minus first")
    parser.add_argument("--data-root", type=Path, help="folder of eval_<length>.json (default: DATA_ROOT)")
    parser.add_argument("--length", help="lengths, separated by blanks (default: LENGTH)")
    parser.add_argument("--model", help="HF folder or id whose tokenizer the server uses")
    parser.add_argument("--url", help="router or server that was started for this, http://HOST:PORT; else BASE_URL")
    parser.add_argument("--output", type=Path, help="folder of the results")
    parser.add_argument("--weights", default="", metavar="NAME",
                        help="name of the weights that the server has, where they are not those of --model; rows of "
                        "other weights do not join")
    parser.add_argument("--means", type=Path, metavar="FILE",
                        help="also write the scores and costs of each length, without intervals, as JSON")
    parser.add_argument("--check", action="store_true",
                        help="only check settings, data and output folder; print the engine's length and how many "
                        "answers are missing; without --output all of them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
