"""Writes training rows and evaluation files of math tasks, which need no document (AGENT=chat, TASK=gsm8k ...).

    mem-agent prepare-math --task gsm8k --input gsm8k_train.jsonl --output train.jsonl --split-eval 200 --eval held_out
    mem-agent prepare-math --task gsm8k --hf-dataset openai/gsm8k --hf-config main --hf-split test --eval gsm8k
    mem-agent prepare-math --task countdown --countdown 2000 --output countdown.jsonl
    mem-agent prepare-math --task math --hf-dataset AI-MO/NuminaMath-TIR --limit 2000 --form boxed --output math.jsonl

``--output`` gets training rows in the fields that slime and vime expect, ``--eval NAME`` writes ``eval_NAME.json``
into ``--data-root`` (the folder of --output unless given), which ``LENGTH=NAME`` evaluates::

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
from ..system.errors import MemAgentError, reason_of
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from . import math_rows
from .rows import BadRow, BadRows, NoGoodRows, Source, open_dataset, open_file

Questions = Sequence[math_rows.MathQuestion]


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    args.eval_file = None
    if args.eval:
        folder = args.data_root or (args.output.parent if args.output else Path())
        args.eval_file = folder / f"eval_{args.eval}.json"
    _check(args)
    bad = BadRows("prepare_math", strict=False)
    questions = _questions(args, bad)
    if not questions:
        bad.tell_rest()
        raise NoGoodRows(f"{_source_name(args)}: no good row among {bad.count}; nothing is written")
    trained, held_out = _split(questions, args)
    wording = _wording(args, trained, held_out, bad)
    bad.tell_rest()
    contents: dict[Path, bytes] = {}
    if args.output:
        rows = (orjson.dumps(wording.training_row(question)) + b"\n" for question in trained)
        contents[args.output] = b"".join(rows)
    if args.eval_file:
        entries = (orjson.dumps(wording.entry(question, index)) for index, question in enumerate(held_out))
        contents[args.eval_file] = b"[\n" + b",\n".join(entries) + b"\n]\n"
    with ExitStack() as files:  # both are made before either is put in its place
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            files.enter_context(replacing(path)).write(content)
    numbers = {args.output: len(trained), args.eval_file: len(held_out)}
    print("; ".join([*(f"{path}: {numbers[path]} rows" for path in contents), f"{bad.count} bad rows left out"]))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises MemAgentError."""
    inputs = {path.resolve() for path in (args.input, args.shots_file) if path}
    outputs = [path for path in (args.output, args.eval_file) if path]
    refused = [
        (not outputs, "nothing to write: give --output FILE, --eval NAME or both"),
        (bool(args.split_eval) != (len(outputs) == 2),
         "--output, --eval and --split-eval N, the rows held out of the first for the second, go together; else give "
         "--output or --eval"),
        (args.shots_from_input and not args.output,
         "--shots-from-input takes shots from rows that are trained, and without --output none is; take --shots-file "
         "FILE"),
        (args.countdown and args.task != "countdown", "--countdown makes rows of --task countdown"),
        (args.eval and (not args.eval.strip() or set(args.eval) & set("/ \\\t")),
         f"--eval {args.eval!r}: a name of a file, without blanks and slashes"),
        *((path.resolve() in inputs, f"{path}: is the input as well; choose another name") for path in outputs),
    ]
    for is_so, message in refused:
        if is_so:
            raise MemAgentError(message)


def _source_name(args: argparse.Namespace) -> str:
    return str(args.input or args.hf_dataset or "--countdown")


def _questions(args: argparse.Namespace, bad: BadRows) -> Questions:
    if args.countdown:
        return math_rows.made_problems(min(args.limit or args.countdown, args.countdown), args.seed)
    if args.input:
        source = open_file(args.input)
    else:
        source = open_dataset(args.hf_dataset, args.hf_split, config=args.hf_config)
    return _read(source, args.task, bad, args.limit)


def _read(source: Source, task: str, bad: BadRows, limit: int | None = None, name: str = "") -> Questions:
    """The good rows, at most ``limit``; the bad ones are reported, with the ``name`` of what they are of."""
    found: list[math_rows.MathQuestion] = []
    for row in tqdm(source.rows, total=source.total, unit=" rows", disable=None):  # None: silent unless a terminal
        stop_if_asked()
        try:
            if row.fields is None:
                raise BadRow(row.problem)
            found.append(math_rows.READERS[task](row.fields))
        except BadRow as error:
            bad.add(f"{name}{row.where}: {error}")
        if len(found) == limit:
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
        raise NoGoodRows(f"{_source_name(args)}: every row that is not held out asks what a held-out one asks; "
                         "nothing is written")
    return trained, held_out


def _wording(
    args: argparse.Namespace, trained: Questions, held_out: Questions, bad: BadRows
) -> math_rows.Wording:
    """Raises MemAgentError where there are fewer examples than shots."""
    pool: Questions = math_rows.examples(args.task)
    if args.shots_file:
        pool = _read(open_file(args.shots_file), args.task, bad, name=f"{args.shots_file}, ")
    elif args.shots_from_input:
        pool = trained
    hidden = {question.asked for question in held_out} if args.split_eval else set()
    solved = {q.question: q for q in pool if math_rows.solution_of(q, args.form) and q.asked not in hidden}
    if args.shots and len(solved) <= args.shots:
        raise MemAgentError(f"--shots {args.shots}: {len(solved)} solved examples are there; at least one more is "
                            "needed")
    system = math_rows.system_wording(args.task, args.form)
    if args.system:
        try:
            system = args.system.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise MemAgentError(f"--system {args.system}: cannot be read ({reason_of(error)})") from None
    as_user = args.system_role == "user"
    return math_rows.Wording(args.task, args.form, system, as_user, args.shots, list(solved.values()), args.seed)


def _parser() -> argparse.ArgumentParser:
    description = "Write training rows and evaluation files of math tasks."
    parser = argparse.ArgumentParser(prog="mem-agent prepare-math", description=description)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", type=Path, metavar="FILE", help=".parquet, .csv, .jsonl or .json (a list) file")
    source.add_argument("--hf-dataset", metavar="ID", help="Hugging Face dataset")
    source.add_argument("--countdown", type=positive_number, metavar="N", help="make N problems of --task countdown")
    parser.add_argument("--hf-config", help="configuration of the dataset, where it has several")
    parser.add_argument("--hf-split", default="train", help="split of the dataset (train)")
    parser.add_argument("--task", required=True, choices=tuple(math_rows.READERS),
                        help="shape of the rows, and their task")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSONL file of training rows")
    parser.add_argument("--eval", metavar="NAME", help="write eval_NAME.json, for LENGTH=NAME")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="its folder (that of --output)")
    parser.add_argument("--split-eval", type=positive_number, metavar="N", help="hold N rows out for --eval")
    parser.add_argument("--form", default=math_rows.FORMS[0], choices=math_rows.FORMS,
                        help="of replies: steps and answer in tags, or a box (reasoning)")
    parser.add_argument("--system", type=Path, metavar="FILE",
                        help="the system message, in place of the pack's; of an empty file: none")
    parser.add_argument("--system-role", default="system", choices=("system", "user"),
                        help="a message of its own, or the head of the first user message (system)")
    parser.add_argument("--shots", type=whole_number, default=0, metavar="K",
                        help="solved examples before each question (0)")
    shots = parser.add_mutually_exclusive_group()
    shots.add_argument("--shots-file", type=Path, metavar="FILE", help="their file, in place of the pack's own")
    shots.add_argument("--shots-from-input", action="store_true", help="take them from the rows that are trained")
    parser.add_argument("--limit", type=positive_number, metavar="N", help="stop after N good rows")
    parser.add_argument("--seed", type=whole_number, default=42, help="shots, held-out rows and problems made (42)")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
