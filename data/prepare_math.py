r"""Writes training rows and evaluation files of math tasks, which need no document (AGENT=chat, TASK=gsm8k ...).

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
no steps are without it.

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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import combinations, count, islice
from pathlib import Path
from typing import Any

import orjson
import yaml
from tqdm import tqdm

from ..rewards.answers import last_boxed
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import replacing
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .rows import BadRow, BadRows, NoGoodRows, open_dataset, open_file

TEXTS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
FORMS: Sequence[str] = tuple(TEXTS["system"])
_CALCULATOR = re.compile(r"<<[^<>]*>>")
SIZES = (3, 4)
"""How many numbers a problem has."""
LARGEST_NUMBER, TARGETS = 99, range(10, 100)
SOLVED_SIZE = 4
"""Problems of more numbers take long to search."""
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class MathQuestion:
    """Question and answer are not blank, and a GSM8K answer is a number without commas."""

    question: str
    answer: str
    """The gold; for Countdown the target."""
    steps: str
    """What leads to the answer; empty where the data has none."""
    result: str
    """What a right reply gives as its answer: the gold, or for Countdown an expression."""
    id: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further fields that the task reads."""

    @property
    def asked(self) -> object:
        """What rows share that ask the same: the text, or for Countdown the numbers in any order and the target."""
        numbers = self.extras.get("numbers")
        return (*sorted(numbers), self.answer) if numbers else self.question

    def solution(self, form: str) -> str:
        """A whole right reply in the form; empty where the data has no steps."""
        if form == "reasoning" and self.steps:
            return f"<reasoning>\n{self.steps}\n</reasoning>\n<answer>\n{self.result}\n</answer>"
        if not self.steps or last_boxed(self.steps) == self.result:
            return self.steps
        return f"{self.steps}\n\\boxed{{{self.result}}}"


# --- Countdown -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Term:
    """A value with how it came about."""

    value: int
    text: str
    steps: tuple[str, ...] = ()
    """One line for each operation, in the order in which they are done."""

    @property
    def expression(self) -> str:
        """Without parentheses around the whole."""
        return self.text[1:-1] if self.steps else self.text


def problems(seed: int | str) -> Iterator[tuple[tuple[int, ...], Term]]:
    """Numbers and solutions without end, whose values are the targets; no two of the same numbers and target."""
    seen = set[tuple[tuple[int, ...], int]]()
    for number in count():
        rng = random.Random(f"{seed}/countdown/{number}")
        numbers = tuple(rng.randint(1, LARGEST_NUMBER) for _ in range(rng.choice(SIZES)))
        terms = _terms(numbers)
        while len(terms) > 1:
            left, right = rng.sample(range(len(terms)), 2)
            joined = rng.choice(list(_joined(terms[left], terms[right])))
            terms = [term for place, term in enumerate(terms) if place not in (left, right)] + [joined]
        key = tuple(sorted(numbers)), terms[0].value
        if terms[0].value in TARGETS and key not in seen:
            seen.add(key)
            yield numbers, terms[0]


def solve(numbers: Sequence[int], target: int) -> Term | None:
    """The first solution that a search finds; None where there is none, or SOLVED_SIZE is exceeded."""
    return _search(_terms(numbers), target) if len(numbers) <= SOLVED_SIZE else None


def _search(terms: list[Term], target: int) -> Term | None:
    if len(terms) == 1:
        return terms[0] if terms[0].value == target else None
    for left, right in combinations(range(len(terms)), 2):
        rest = [term for place, term in enumerate(terms) if place not in (left, right)]
        for joined in _joined(terms[left], terms[right]):
            if (found := _search([*rest, joined], target)) is not None:
                return found
    return None


def _terms(numbers: Sequence[int]) -> list[Term]:
    return [Term(number, str(number)) for number in numbers]


def _joined(one: Term, other: Term) -> Iterator[Term]:
    """All that the two give, whole and not negative."""
    large, small = (one, other) if one.value >= other.value else (other, one)
    values = {"+": large.value + small.value, "-": large.value - small.value, "*": large.value * small.value}
    if small.value and large.value % small.value == 0:
        values["/"] = large.value // small.value
    for sign, value in values.items():
        step = f"{large.value} {sign} {small.value} = {value}"
        yield Term(value, f"({large.text} {sign} {small.text})", (*large.steps, *small.steps, step))


# --- rows in ---------------------------------------------------------------------------------------------------------
def _gsm8k(fields: Mapping[str, Any]) -> MathQuestion:
    question = _text(fields, "question")
    steps, mark, last = _text(fields, "answer").rpartition("####")
    answer = last.strip().replace(",", "").removeprefix("$")
    if not mark or not _NUMBER.fullmatch(answer):
        raise BadRow(f"answer has no number behind ####: {last.strip()[:40]!r}")
    return MathQuestion(question, answer, _CALCULATOR.sub("", steps).strip(), answer, _id(fields, question))


def _math(fields: Mapping[str, Any]) -> MathQuestion:
    question = _text(fields, "problem" if fields.get("problem") is not None else "question")
    steps, given = str(fields.get("solution") or "").strip(), fields.get("answer")
    answer = ("" if given is None else str(given).strip()) or last_boxed(steps) or ""
    if not answer:
        raise BadRow("has neither an answer nor a solution with \\boxed{}")
    return MathQuestion(question, answer, steps, answer, _id(fields, question))


def _countdown(fields: Mapping[str, Any]) -> MathQuestion:
    """A table may hold the JSON text of the numbers."""
    numbers, target = fields.get("nums", fields.get("numbers")), fields.get("target")
    with suppress(ValueError):
        numbers = orjson.loads(numbers) if isinstance(numbers, str) else numbers
        target = orjson.loads(target) if isinstance(target, str) else target
    whole = isinstance(numbers, list) and all(type(one) is int and one >= 0 for one in numbers)
    if not whole or len(numbers) < 2 or type(target) is not int:
        raise BadRow("nums (or numbers) and target must be at least two whole numbers, none below 0, and one")
    return _problem(numbers, target, solve(numbers, target), fields)


READERS: Mapping[str, Callable[[Mapping[str, Any]], MathQuestion]] = {
    "gsm8k": _gsm8k, "math": _math, "countdown": _countdown,
}
"""Of the rows of each task; they raise BadRow."""


def made_problems(number: int, seed: int | str) -> list[MathQuestion]:
    """Countdown problems that have solutions."""
    return [_problem(numbers, term.value, term, {}) for numbers, term in islice(problems(seed), number)]


def examples(task: str) -> list[MathQuestion]:
    """Solved ones of the pack's own."""
    return made_problems(8, "exemplars") if task == "countdown" else list(map(_gsm8k, TEXTS["examples"]))


def _problem(numbers: Sequence[int], target: int, solution: Term | None, fields: Mapping[str, Any]) -> MathQuestion:
    *most, last = map(str, numbers)
    question = TEXTS["countdown"].format(target=target, most=", ".join(most), last=last)
    steps, result = ("\n".join(solution.steps), solution.expression) if solution else ("", "")
    extras = {"numbers": list(numbers), "target": target}
    return MathQuestion(question, str(target), steps, result, _id(fields, question), extras)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{name} is {'missing' if value is None else 'no text'}")
    return value.strip()


def _id(fields: Mapping[str, Any], question: str) -> str:
    """The row's own or, without one, a digest of its question."""
    given = [fields[name] for name in ("id", "unique_id") if fields.get(name) is not None]
    return str(given[0]) if given else hashlib.sha256(question.encode()).hexdigest()[:16]


# --- rows out --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Wording:
    """How questions of one file are asked."""

    task: str
    form: str
    system: str
    """Empty: no such message."""
    shots: int
    pool: Sequence[MathQuestion]
    """Where shots are drawn from; all have steps."""
    seed: int

    def training_row(self, question: MathQuestion) -> dict[str, Any]:
        metadata = {"task": self.task, "ground_truth": [question.answer], "id": question.id, **question.extras}
        if solution := question.solution(self.form):
            metadata["solution"] = solution
        return {"prompt": self._messages(question), "label": question.answer, "metadata": metadata}

    def entry(self, question: MathQuestion, index: int) -> dict[str, Any]:
        """Of an evaluation file."""
        *before, asked = self._messages(question)
        entry = {"index": index, "id": question.id, "messages": before, "input": asked["content"],
                 "answers": [question.answer], "task": self.task}
        return entry | ({"metadata": dict(question.extras)} if question.extras else {})

    def _messages(self, question: MathQuestion) -> list[dict[str, str]]:
        """The question is the last one; shots are drawn by seed and question alone, and are never the question."""
        messages = [{"role": "system", "content": self.system}] if self.system else []
        rng = random.Random(f"{self.seed}/shots/{question.question}")
        # One more than is needed, for the question itself may be among them.
        drawn = rng.sample(self.pool, min(self.shots + 1, len(self.pool)))
        for shot in [shot for shot in drawn if shot.question != question.question][: self.shots]:
            messages.append({"role": "user", "content": shot.question})
            messages.append({"role": "assistant", "content": shot.solution(self.form)})
        return [*messages, {"role": "user", "content": question.question}]


# --- the command -----------------------------------------------------------------------------------------------------
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
