"""Writes training rows and evaluation files of math tasks, which need no document (AGENT=chat, TASK=gsm8k ...).

    mem-agent prepare-math --task gsm8k --input gsm8k_train.jsonl --output train.jsonl --split-eval 200 --eval held_out
    mem-agent prepare-math --task gsm8k --hf-dataset openai/gsm8k --hf-config main --hf-split test \
        --eval data/gsm8k
    mem-agent prepare-math --task countdown --countdown 2000 --output countdown.jsonl
    mem-agent prepare-math --task math --hf-dataset AI-MO/NuminaMath-TIR --limit 2000 --form boxed --output math.jsonl

``--output`` gets training rows in the fields that slime and vime expect, ``--eval NAME`` writes ``eval_NAME.json``
beside it, which ``LENGTH=NAME`` evaluates; ``--eval DIR/NAME`` names the folder::

    {"prompt": [{"role": "system", ...}, {"role": "user", "content": "How many ...?"}], "label": "72",
     "metadata": {"task": "gsm8k", "ground_truth": ["72"], "id": "5d1f...", "solution": "<reasoning>..."}}
    {"index": 0, "messages": [{"role": "system", ...}], "input": "How many ...?", "answers": ["72"], "task": "gsm8k"}

``metadata.solution`` is the gold reply in the form that is asked for, which ``LOSS=sft`` trains; rows whose data have
no steps are without it. ``math_rows`` shows the shapes of rows and what becomes of them.

Equal data and options give equal bytes; which rows are held out depends on seed and number of rows alone. A row that
is held out is trained by none: neither as a row nor as a shot. Files appear whole; after an error those of an earlier
run are as they were. Every row left out is reported on stderr (the first 20 one by one) and counted. Rows are held in
memory.

Exit codes: 0 rows were written, 1 no good row, 2 the input cannot be used, or the output not written, 130 interrupted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson
from tqdm import tqdm

from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .math_rows import FORMS, READERS, TEXTS, MathQuestion, Wording, examples, made_problems
from .rows import BadRow, BadRows, NoGoodRows, open_dataset, open_file

Questions = list[MathQuestion]


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    eval_file = Path(args.eval).with_name(f"eval_{Path(args.eval).name}.json") if args.eval else None
    if eval_file and args.output and eval_file.parent == Path():
        eval_file = args.output.parent / eval_file
    outputs = [path for path in (args.output, eval_file) if path]
    if not outputs or bool(args.split_eval) != (len(outputs) == 2):
        raise MemAgentError("--output FILE, --eval NAME and --split-eval N, the rows held out of the first for the "
                            "second, go together; else give --output or --eval")
    if args.countdown and args.task != "countdown":
        raise MemAgentError("--countdown makes rows of --task countdown")
    if args.input and args.input.resolve() in [path.resolve() for path in outputs]:
        raise MemAgentError(f"{args.input}: is the output as well; choose another name")
    bad = BadRows("prepare_math")
    questions = _questions(args, bad)
    bad.tell_rest()
    if not questions:
        raise NoGoodRows(f"{args.input or args.hf_dataset}: no good row among {bad.count}; nothing is written")
    trained, held_out = _split(questions, args)
    wording = _wording(args)
    with ExitStack() as files:  # both are made before either is put in its place
        for path in outputs:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = files.enter_context(replacing(path))
            if path == args.output:
                file.writelines(orjson.dumps(wording.training_row(question)) + b"\n" for question in trained)
            else:
                entries = (orjson.dumps(wording.entry(question, index)) for index, question in enumerate(held_out))
                file.write(b"[\n" + b",\n".join(entries) + b"\n]\n")
    rows = [f"{path}: {len(trained if path == args.output else held_out)} rows" for path in outputs]
    print("; ".join([*rows, f"{bad.count} bad rows left out"]))
    return 0


def _questions(args: argparse.Namespace, bad: BadRows) -> Questions:
    """The good rows, at most ``--limit``; the bad ones are reported."""
    if args.countdown:
        return made_problems(min(args.limit or args.countdown, args.countdown), args.seed)
    rows = open_file(args.input) if args.input else open_dataset(args.hf_dataset, args.hf_split, config=args.hf_config)
    found: Questions = []
    for row in tqdm(rows, unit=" rows", disable=None):  # None: silent unless a terminal
        stop_if_asked()
        try:
            found.append(READERS[args.task](row.fields))
        except BadRow as error:
            bad.add(f"{row.where}: {error}")
        if len(found) == args.limit:
            break
    return found


def _split(questions: Questions, args: argparse.Namespace) -> tuple[Questions, Questions]:
    """What is trained and what is evaluated. Raises MemAgentError."""
    if not args.split_eval:
        return questions, questions
    if args.split_eval >= len(questions):
        raise MemAgentError(f"--split-eval {args.split_eval}: there are {len(questions)} rows; leave some to train")
    held = set(random.Random(f"{args.seed}/held out").sample(range(len(questions)), args.split_eval))
    held_out = [question for number, question in enumerate(questions) if number in held]
    asked = {question.asked for question in held_out}
    trained = [question for question in questions if question.asked not in asked]
    if not trained:
        raise NoGoodRows("every row that is not held out asks what a held-out one asks; nothing is written")
    return trained, held_out


def _wording(args: argparse.Namespace) -> Wording:
    """Raises MemAgentError where there are fewer examples than shots."""
    pool = examples(args.task)
    if args.shots >= len(pool):
        raise MemAgentError(f"--shots {args.shots}: the pack has {len(pool)} solved examples; give fewer than that")
    system = TEXTS["system"][args.form].format(answer=TEXTS["answer"][args.task])
    if args.system:
        system = args.system.read_text(encoding="utf-8").strip()
    return Wording(args.task, args.form, system, args.shots, pool, args.seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent prepare-math", description="Write rows of math tasks.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", type=Path, metavar="FILE", help=".parquet, .csv, .jsonl or .json (a list) file")
    source.add_argument("--hf-dataset", metavar="ID", help="Hugging Face dataset")
    source.add_argument("--countdown", type=positive_number, metavar="N", help="make N problems of --task countdown")
    add = parser.add_argument
    add("--hf-config", help="configuration of the dataset, where it has several")
    add("--hf-split", default="train", help="split of the dataset (train)")
    add("--task", required=True, choices=tuple(READERS), help="shape of the rows, and their task")
    add("--output", type=Path, metavar="FILE", help="JSONL file of training rows")
    add("--eval", metavar="NAME", help="write eval_NAME.json, for LENGTH=NAME, beside --output; DIR/NAME: in DIR")
    add("--split-eval", type=positive_number, metavar="N", help="hold N rows out for --eval")
    add("--form", default=FORMS[0], choices=FORMS, help="of replies: steps and answer in tags, or a box (reasoning)")
    add("--system", type=Path, metavar="FILE", help="the system message, in place of the pack's; empty: none")
    add("--shots", type=whole_number, default=0, metavar="K", help="solved examples before each question (0)")
    add("--limit", type=positive_number, metavar="N", help="stop after N good rows")
    add("--seed", type=whole_number, default=42, help="shots, held-out rows and problems made (42)")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
