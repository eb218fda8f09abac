r"""Math questions: rows of data sets in, training rows and entries of evaluation files out.

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

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, count, islice
from pathlib import Path
from typing import Any

import orjson
import yaml

from ..rewards.answers import last_boxed
from .rows import BadRow

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
