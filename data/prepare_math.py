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
no steps are without it. ``math_questions`` shows the shapes of rows, ``math_rows`` what becomes of them.

Invariants:
- equal data and options give equal bytes; which rows are held out depends on seed and number of rows alone;
- a row that is held out is trained by none: neither as a row nor as a shot;
- files appear whole; after an error those of an earlier run are as they were;
- every row left out is reported on stderr (the first 20 one by one) and counted.

Rows are held in memory.

Exit codes: 0 rows were written, 1 no good row (or a bad one under --strict), 2 the input cannot be used, or the
output not written, 130 interrupted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import orjson
from tqdm import tqdm

from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError, reason_of
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .countdown import problems
from .lengths import eval_name
from .math_exemplars import exemplars
from .math_questions import READERS, MathQuestion, of_problem
from .math_rows import Form, Wording, reply, system_wording
from .rows import BadRow, BadRows, DataError, NoGoodRows, Source, open_dataset, open_file

_ROLES = ("system", "user")


@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = _parser().parse_args(argv)
    print(_run(args))
    return 0


def _run(args: argparse.Namespace) -> str:
    _check(args)
    bad = BadRows("prepare_math", strict=args.strict)
    questions = _questions(args, bad)
    if not questions:
        bad.tell_rest()
        raise NoGoodRows(f"{_source_name(args)}: no good row among {bad.count}; nothing is written")
    trained, held_out = _split(questions, args)
    wording = _wording(args, trained, held_out, bad)
    bad.tell_rest()
    written = []
    with ExitStack() as files:
        # Both are made before either is put in its place.
        if args.eval:
            path = _folder(args) / eval_name(args.eval)
            entries = [orjson.dumps(wording.entry(question, index)) for index, question in enumerate(held_out)]
            _open(files, path).write(b"[\n" + b",\n".join(entries) + b"\n]\n")
            written.append(f"{path}: {len(held_out)} rows")
        if args.output:
            rows = map(wording.training_row, trained)
            _open(files, args.output).writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
            written.append(f"{args.output}: {len(trained)} rows")
    return "; ".join([*reversed(written), f"{bad.count} bad rows left out"])


def _check(args: argparse.Namespace) -> None:
    """Raises DataError."""
    if not (args.output or args.eval):
        raise DataError("nothing to write: give --output FILE, --eval NAME or both")
    if bool(args.split_eval) != bool(args.output and args.eval):
        raise DataError("--output, --eval and --split-eval N, the rows held out of the first for the second, go "
                          "together; else give --output or --eval")
    if args.shots_from_input and not args.output:
        raise DataError("--shots-from-input takes shots from rows that are trained, and without --output none is; "
                          "take --shots-file FILE")
    if args.countdown and args.task != "countdown":
        raise DataError("--countdown makes rows of --task countdown")
    if args.eval and (not args.eval.strip() or set(args.eval) & set("/ \\\t")):
        raise DataError(f"--eval {args.eval!r}: a name of a file, without blanks and slashes")
    inputs = [path for path in (args.input, args.shots_file) if path]
    outputs = [args.output] if args.output else []
    outputs += [_folder(args) / eval_name(args.eval)] if args.eval else []
    for output in outputs:
        if output.exists() and any(path.exists() and path.samefile(output) for path in inputs):
            raise DataError(f"{output}: is the input as well; choose another name")


def _folder(args: argparse.Namespace) -> Path:
    return args.data_root or (args.output.parent if args.output else Path())


def _source_name(args: argparse.Namespace) -> str:
    return str(args.input or args.hf_dataset or "--countdown")


def _questions(args: argparse.Namespace, bad: BadRows) -> list[MathQuestion]:
    if args.countdown:
        count = min(args.limit or args.countdown, args.countdown)
        return [of_problem(problem) for problem in problems(count, args.seed)]
    if args.input:
        source = open_file(args.input)
    else:
        source = open_dataset(args.hf_dataset, args.hf_split, args.hf_revision, args.hf_config)
    return _read(source, args.task, bad, args.limit)


def _read(source: Source, task: str, bad: BadRows, limit: int | None = None, name: str = "") -> list[MathQuestion]:
    """The good rows, at most ``limit``; the bad ones are told, with the ``name`` of what they are of."""
    found: list[MathQuestion] = []
    for row in tqdm(source.rows, total=source.total, unit=" rows", disable=None):  # None: silent unless a terminal
        stop_if_asked()
        try:
            if row.fields is None:
                raise BadRow(row.problem)
            question = READERS[task](row.fields)
        except BadRow as error:
            bad.add(f"{name}{row.where}: {error}")
            continue
        found.append(question)
        if len(found) == limit:
            break
    return found


def _split(
    questions: Sequence[MathQuestion], args: argparse.Namespace
) -> tuple[Sequence[MathQuestion], Sequence[MathQuestion]]:
    """What is trained and what is evaluated. Raises DataError."""
    if not args.split_eval:
        return (questions, ()) if args.output else (questions, questions)
    if args.split_eval >= len(questions):
        raise DataError(f"--split-eval {args.split_eval}: there are {len(questions)} rows; leave some to train")
    held = set(random.Random(f"{args.seed}/held out").sample(range(len(questions)), args.split_eval))
    kept = [[q for number, q in enumerate(questions) if (number in held) is wanted] for wanted in (False, True)]
    asked = {question.asked for question in kept[1]}
    trained = [question for question in kept[0] if question.asked not in asked]
    if not trained:
        raise NoGoodRows(f"{_source_name(args)}: every row that is not held out asks what a held-out one asks; "
                         "nothing is written")
    return trained, kept[1]


def _wording(
    args: argparse.Namespace, trained: Sequence[MathQuestion], held_out: Sequence[MathQuestion], bad: BadRows
) -> Wording:
    """Raises DataError where there are fewer examples than shots."""
    form = Form(args.form)
    pool: Sequence[MathQuestion] = exemplars(args.task)
    if args.shots_file:
        pool = _read(open_file(args.shots_file), args.task, bad, name=f"{args.shots_file}, ")
    elif args.shots_from_input:
        pool = trained
    hidden = {question.asked for question in held_out} if args.split_eval else set()
    solved = {q.question: q for q in pool if reply(q, form) and q.asked not in hidden}
    pool = list(solved.values())
    if args.shots and len(pool) <= args.shots:
        raise DataError(f"--shots {args.shots}: {len(pool)} solved examples are there; at least one more is needed")
    return Wording(args.task, form, _system(args, form), args.system_role == "user", args.shots, pool, args.seed)


def _system(args: argparse.Namespace, form: Form) -> str:
    """Raises DataError."""
    if args.system is None:
        return system_wording(args.task, form)
    try:
        return args.system.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise DataError(f"--system {args.system}: cannot be read ({reason_of(error)})") from None


def _open(files: ExitStack, path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return files.enter_context(replacing(path))


def _parser() -> argparse.ArgumentParser:
    description = "Write training rows and evaluation files of math tasks."
    parser = argparse.ArgumentParser(prog="mem-agent prepare-math", description=description)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", type=Path, metavar="FILE", help=".parquet, .csv, .jsonl or .json (a list) file")
    source.add_argument("--hf-dataset", metavar="ID", help="Hugging Face dataset")
    source.add_argument("--countdown", type=positive_number, metavar="N", help="make N problems of --task countdown")
    parser.add_argument("--hf-config", help="configuration of the dataset, where it has several")
    parser.add_argument("--hf-split", default="train", help="split of the dataset (train)")
    parser.add_argument("--hf-revision", help="branch, tag or commit of the dataset")
    parser.add_argument("--task", required=True, choices=tuple(READERS), help="shape of the rows, and their task")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSONL file of training rows")
    parser.add_argument("--eval", metavar="NAME", help="write eval_NAME.json, for LENGTH=NAME")
    parser.add_argument("--data-root", type=Path, metavar="DIR", help="its folder (that of --output)")
    parser.add_argument("--split-eval", type=positive_number, metavar="N", help="hold N rows out for --eval")
    parser.add_argument("--form", default=Form.REASONING.value, choices=tuple(map(str, Form)),
                        help="of replies: steps and answer in tags, or a box (reasoning)")
    parser.add_argument("--system", type=Path, metavar="FILE",
                        help="the system message, in place of the pack's; of an empty file: none")
    parser.add_argument("--system-role", default=_ROLES[0], choices=_ROLES,
                        help="a message of its own, or the head of the first user message (system)")
    parser.add_argument("--shots", type=whole_number, default=0, metavar="K",
                        help="solved examples before each question (0)")
    shots = parser.add_mutually_exclusive_group()
    shots.add_argument("--shots-file", type=Path, metavar="FILE", help="their file, in place of the pack's own")
    shots.add_argument("--shots-from-input", action="store_true", help="take them from the rows that are trained")
    parser.add_argument("--limit", type=positive_number, metavar="N", help="stop after N good rows")
    parser.add_argument("--seed", type=whole_number, default=42, help="shots, held-out rows and problems made (42)")
    parser.add_argument("--strict", action="store_true", help="end at the first bad row, writing nothing")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
