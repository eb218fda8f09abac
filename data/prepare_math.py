r"""Writes training rows and evaluation files of math tasks, which need no document (AGENT=chat, TASK=gsm8k ...).

    mem-agent prepare-math --task gsm8k --input gsm8k_train.jsonl --output train.jsonl --split-eval 200 --eval held_out
    mem-agent prepare-math --task gsm8k --hf-dataset openai/gsm8k --hf-config main --hf-split test \
        --eval data/gsm8k
    mem-agent prepare-math --task countdown --countdown 2000 --output countdown.jsonl
    mem-agent prepare-math --task math --hf-dataset AI-MO/NuminaMath-TIR --form boxed --output math.jsonl

``--output`` gets training rows in the fields that slime and vime expect, ``--eval NAME`` writes ``eval_NAME.json``
beside it, which ``LENGTH=NAME`` evaluates; ``--eval DIR/NAME`` names the folder::

    {"prompt": [{"role": "system", ...}, {"role": "user", "content": "How many ...?"}], "label": "72",
     "metadata": {"task": "gsm8k", "ground_truth": ["72"], "id": "5d1f...", "solution": "<reasoning>..."}}
    {"index": 0, "messages": [{"role": "system", ...}], "input": "How many ...?", "answers": ["72"], "task": "gsm8k"}

``metadata.solution`` is the gold reply in the form that is asked for, which ``LOSS=sft`` trains; rows whose data have
no steps are without it: problems that ``--countdown`` makes have them, Countdown rows of a file do not.

Equal data and options give equal bytes; which rows are held out depends on seed and number of rows alone. A row that
is held out is trained by none: neither as a row nor as a shot. Files appear whole; after an error those of an earlier
run are as they were. Every row left out is reported on stderr (the first 20 one by one) and counted. Rows are held in
memory.

Exit codes: 0 rows were written, 1 no good row, 2 the input cannot be used, or the output not written, 130 interrupted.

Rows of the tasks, with what is read of them:

=============  =======================================================================================================
``gsm8k``      ``question``; ``answer``: steps, perhaps with calculator marks ``<<48/2=24>>``, then ``#### 1,080``
``math``       ``problem`` or ``question``; ``answer``, or the last ``\boxed{}`` of ``solution``, which has the steps
``countdown``  ``nums`` or ``numbers``; ``target``
=============  =======================================================================================================

    {"question": "How many?", "answer": "He has 48/2 = <<48/2=24>>24.\n#### 1,080"}
    -> question "How many?", answer "1080", steps "He has 48/2 = 24."

What comes out are chat messages, perhaps with solved examples. Form ``reasoning`` of a question with gold 72 and steps
"48 / 2 = 24 ...", one shot, and what a right reply is::

    system     what to reply with, in the form that is asked for
    user       the shot's question
    assistant  <reasoning>\n...\n</reasoning>\n<answer>\n22\n</answer>
    user       the question
    solution   <reasoning>\n48 / 2 = 24 ...\n</reasoning>\n<answer>\n72\n</answer>

Form ``boxed`` ends in ``\boxed{72}``.

Countdown: reach a target with some numbers, each used exactly once, by ``+ - * /`` and parentheses::

    numbers 6, 4, 1   target 24      steps 6 * 4 = 24, 24 * 1 = 24      expression (6 * 4) * 1

Problems are made backwards, from a random expression to its value, so every one has a solution. All values on the way
are whole and not negative, as in the game; a problem that needs a fraction has no solution here.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..rewards.answers import Form, in_form, last_boxed
from ..system.cli import one_line_errors, positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import replacing
from .rows import BadRow, BadRows, NoGoodRows, as_json_lines, as_json_list, open_dataset, open_file

TEXTS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_CALCULATOR, _NUMBER = re.compile(r"<<[^<>]*>>"), re.compile(r"-?\d+(\.\d+)?")
SIZES = (3, 4)
"""How many numbers a problem has."""
LARGEST_NUMBER, TARGETS = 99, range(10, 100)
EXAMPLES = 8
Fields = Mapping[str, Any]


class MathQuestion(NamedTuple):
    """Question and answer are not blank, and a GSM8K answer is a number without commas."""

    question: str
    answer: str
    """The gold; for Countdown the target."""
    steps: str
    """What leads to the answer; empty where the data has none."""
    result: str
    """What a right reply gives as its answer: the gold, or for Countdown an expression."""
    id: str
    extras: Fields = {}
    """Further fields that the task reads."""

    @property
    def asked(self) -> object:
        """What rows share that ask the same: the text, or for Countdown the numbers in any order and the target."""
        numbers = self.extras.get("numbers")
        return (*sorted(numbers), self.answer) if numbers else self.question

    def solution(self, form: Form) -> str:
        """A whole right reply in the form; empty where the data has no steps."""
        if not self.steps or (form == "boxed" and last_boxed(self.steps) == self.result):
            return self.steps
        return in_form(form, self.steps, self.result)


# --- Countdown -------------------------------------------------------------------------------------------------------
Term = tuple[int, str, tuple[str, ...]]
"""A value, its expression, and one line for each operation, in the order in which they are done."""


def problems(seed: int | str) -> Iterator[MathQuestion]:
    """Problems and solutions without end; no two of the same numbers and target."""
    seen = set[object]()
    for number in count():
        rng = random.Random(f"{seed}/countdown/{number}")
        numbers = [rng.randint(1, LARGEST_NUMBER) for _ in range(rng.choice(SIZES))]
        terms: list[Term] = [(number, str(number), ()) for number in numbers]
        while len(terms) > 1:
            pair = rng.sample(range(len(terms)), 2)
            joined = rng.choice(_joined(*(terms[place] for place in pair)))
            terms = [term for place, term in enumerate(terms) if place not in pair] + [joined]
        value, solution, steps = terms[0]
        made = _problem(numbers, value, {}, solution[1:-1], steps)
        if value in TARGETS and made.asked not in seen:
            seen.add(made.asked)
            yield made


def _joined(one: Term, other: Term) -> list[Term]:
    """All that the two give, whole and not negative."""
    (large, first, before), (small, second, then) = (one, other) if one[0] >= other[0] else (other, one)
    values = {"+": large + small, "-": large - small, "*": large * small}
    if small and large % small == 0:
        values["/"] = large // small
    return [(value, f"({first} {sign} {second})", (*before, *then, f"{large} {sign} {small} = {value}"))
            for sign, value in values.items()]


# --- rows in ---------------------------------------------------------------------------------------------------------
def _gsm8k(fields: Fields) -> MathQuestion:
    question = _text(fields, "question")
    steps, mark, last = _text(fields, "answer").rpartition("####")
    answer = last.strip().replace(",", "").removeprefix("$")
    if not mark or not _NUMBER.fullmatch(answer):
        raise BadRow(f"answer has no number behind ####: {last.strip()[:40]!r}")
    return MathQuestion(question, answer, _CALCULATOR.sub("", steps).strip(), answer, _id(fields, question))


def _math(fields: Fields) -> MathQuestion:
    question = _text(fields, "problem" if fields.get("problem") is not None else "question")
    steps, given = str(fields.get("solution") or "").strip(), fields.get("answer")
    answer = ("" if given is None else str(given).strip()) or last_boxed(steps) or ""
    if not answer:
        raise BadRow("has neither an answer nor a solution with \\boxed{}")
    return MathQuestion(question, answer, steps, answer, _id(fields, question))


def _countdown(fields: Fields) -> MathQuestion:
    numbers: Any = fields.get("nums", fields.get("numbers"))
    target: Any = fields.get("target")
    if not isinstance(numbers, list) or len(numbers) < 2 or any(type(one) is not int for one in [*numbers, target]):
        raise BadRow("nums (or numbers) and target must be at least two whole numbers, and one")
    return _problem(numbers, target, fields)


READERS: Mapping[str, Callable[[Fields], MathQuestion]] = {"gsm8k": _gsm8k, "math": _math, "countdown": _countdown}
"""Of the rows of each task; they raise BadRow."""


def examples(task: str) -> Iterable[MathQuestion]:
    """Solved ones of the pack's own."""
    return islice(problems("exemplars"), EXAMPLES) if task == "countdown" else map(_gsm8k, TEXTS["examples"])


def _problem(
    numbers: Sequence[int], target: int, fields: Fields, solution: str = "", steps: Sequence[str] = ()
) -> MathQuestion:
    *most, last = map(str, numbers)
    question = TEXTS["countdown"].format(target=target, most=", ".join(most), last=last)
    extras = {"numbers": list(numbers), "target": target}
    return MathQuestion(question, str(target), "\n".join(steps), solution, _id(fields, question), extras)


def _text(fields: Fields, name: str) -> str:
    text = str(fields.get(name) or "").strip()
    if not text:
        raise BadRow(f"{name} is missing")
    return text


def _id(fields: Fields, question: str) -> str:
    """The row's own or, without one, a digest of its question."""
    given = [fields[name] for name in ("id", "unique_id") if fields.get(name) is not None]
    return str(given[0]) if given else hashlib.sha256(question.encode()).hexdigest()[:16]


# --- rows out --------------------------------------------------------------------------------------------------------
def _training_row(question: MathQuestion, messages: list[dict[str, str]], args: argparse.Namespace) -> dict[str, Any]:
    metadata = {"task": args.task, "ground_truth": [question.answer], "id": question.id, **question.extras}
    if solution := question.solution(args.form):
        metadata["solution"] = solution
    return {"prompt": messages, "label": question.answer, "metadata": metadata}


def _entry(index: int, question: MathQuestion, messages: list[dict[str, str]], task: str) -> dict[str, Any]:
    """Of an evaluation file."""
    entry = {"index": index, "id": question.id, "messages": messages[:-1], "input": question.question,
             "answers": [question.answer], "task": task}
    return entry | ({"metadata": question.extras} if question.extras else {})


def _asking(args: argparse.Namespace) -> Callable[[MathQuestion], list[dict[str, str]]]:
    """How a question is asked: it is the last message; shots are drawn by seed and question alone, and are never the
    question."""
    system = TEXTS["system"][args.form].format(answer=TEXTS["answer"][args.task])
    if args.system:
        system = args.system.read_text(encoding="utf-8").strip()
    pool = list(examples(args.task))

    def messages(question: MathQuestion) -> list[dict[str, str]]:
        said = [("system", system)] if system else []
        # One more than is needed, for the question itself may be among them.
        drawn = random.Random(f"{args.seed}/shots/{question.question}").sample(pool, args.shots + 1)
        for shot in [shot for shot in drawn if shot.question != question.question][: args.shots]:
            said += [("user", shot.question), ("assistant", shot.solution(args.form))]
        return [{"role": role, "content": text} for role, text in [*said, ("user", question.question)]]

    return messages


# --- the command -----------------------------------------------------------------------------------------------------
@one_line_errors("the earlier output, if any, is as it was", codes={NoGoodRows: 1, MemAgentError: 2, OSError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="mem-agent prepare-math", description="Write rows of math tasks.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", type=Path, metavar="FILE", help=".parquet, .csv, .jsonl or .json (a list) file")
    source.add_argument("--hf-dataset", metavar="ID", help="Hugging Face dataset")
    source.add_argument("--countdown", type=positive_number, metavar="N", help="make N problems of --task countdown")
    add, forms = parser.add_argument, tuple(TEXTS["system"])
    add("--hf-config", help="configuration of the dataset, where it has several")
    add("--hf-split", default="train", help="split of the dataset (train)")
    add("--task", required=True, choices=tuple(READERS), help="shape of the rows, and their task")
    add("--output", type=Path, metavar="FILE", help="JSONL file of training rows")
    add("--eval", type=Path, metavar="NAME",
        help="write eval_NAME.json, for LENGTH=NAME, beside --output; DIR/NAME: in DIR")
    add("--split-eval", type=positive_number, default=0, metavar="N", help="hold N rows out for --eval")
    add("--form", default=forms[0], choices=forms, help="of replies: steps and answer in tags, or a box (reasoning)")
    add("--system", type=Path, metavar="FILE", help="the system message, in place of the pack's; empty: none")
    add("--shots", type=int, choices=range(EXAMPLES), default=0, metavar="K",
        help=f"solved examples before each question, at most {EXAMPLES - 1} (0)")
    add("--seed", type=whole_number, default=42, help="shots, held-out rows and problems made (42)")
    args = parser.parse_args(argv)
    if not (args.output or args.eval) or bool(args.split_eval) != bool(args.output and args.eval):
        raise MemAgentError("--output FILE, --eval NAME and --split-eval N, the rows held out of the first for the "
                            "second, go together; else give --output or --eval")
    if args.input and args.output and args.input.resolve() == args.output.resolve():
        raise MemAgentError(f"{args.input}: is the output as well; choose another name")
    bad = BadRows("prepare_math")
    if args.countdown:
        questions = list(islice(problems(args.seed), args.countdown))
    else:
        rows = open_file(args.input) if args.input else open_dataset(args.hf_dataset, args.hf_split, args.hf_config)
        questions = list(bad.sift(rows, READERS[args.task]))
        bad.tell_rest()
    if not questions:
        raise NoGoodRows(f"{args.input or args.hf_dataset}: no good row among {bad.count}; nothing is written")
    if args.split_eval >= len(questions):
        raise MemAgentError(f"--split-eval {args.split_eval}: there are {len(questions)} rows; leave some to train")
    held = random.Random(f"{args.seed}/held out").sample(range(len(questions)), args.split_eval)
    held_out = [questions[number] for number in sorted(held)]
    never = {question.asked for question in held_out}
    trained = [question for question in questions if question.asked not in never]
    evaluated, asked, made = held_out or questions, _asking(args), list[tuple[Path, Iterable[bytes], int]]()
    if args.output:
        lines = as_json_lines(_training_row(each, asked(each), args) for each in trained)
        made.append((args.output, lines, len(trained)))
    if args.eval:
        folder = args.output.parent if args.output and args.eval.parent == Path() else args.eval.parent
        entries = (_entry(number, each, asked(each), args.task) for number, each in enumerate(evaluated))
        made.append((folder / f"eval_{args.eval.name}.json", as_json_list(entries), len(evaluated)))
    with ExitStack() as files:  # both are made before either is put in its place
        for path, content, _ in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.enter_context(replacing(path)).writelines(content)
    print("; ".join([*(f"{path}: {number} rows" for path, _, number in made), f"{bad.count} bad rows left out"]))
    return 0
