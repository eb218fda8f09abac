r"""Rows of math data sets as ``MathQuestion``.

=============  =======================================================================================================
``gsm8k``      ``question``; ``answer``: steps, perhaps with calculator marks ``<<48/2=24>>``, then ``#### 1,080``
``math``       ``problem`` or ``question``; ``answer``, or the last ``\boxed{}`` of ``solution``, which has the steps
``countdown``  ``nums`` or ``numbers``; ``target``
=============  =======================================================================================================

    {"question": "How many?", "answer": "He has 48/2 = <<48/2=24>>24.\n#### 1,080"}
    -> question "How many?", answer "1080", steps "He has 48/2 = 24."

Invariants: question and answer are not blank, and a GSM8K answer is a number without commas. A row that cannot meet
them raises ``BadRow``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..rewards.answers import last_boxed
from .countdown import Problem, Term, solve
from .rows import BadRow

_CALCULATOR = re.compile(r"<<[^<>]*>>")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class MathQuestion:
    question: str
    answer: str
    """The gold; for Countdown the target."""
    steps: str = ""
    """What leads to the answer; empty where the data has none."""
    result: str = ""
    """What a right reply gives as its answer: the gold, or for Countdown an expression."""
    id: str = ""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Further fields that the task reads."""

    @property
    def asked(self) -> object:
        """What rows share that ask the same: the text, or for Countdown the numbers in any order and the target."""
        numbers = self.extras.get("numbers")
        return (*sorted(numbers), self.answer) if numbers else self.question


def read_gsm8k(fields: Mapping[str, Any]) -> MathQuestion:
    """Raises BadRow."""
    question = _text(fields, "question")
    steps, mark, last = _text(fields, "answer").rpartition("####")
    answer = last.strip().replace(",", "").removeprefix("$")
    if not mark or not _NUMBER.fullmatch(answer):
        raise BadRow(f"answer has no number behind ####: {last.strip()[:40]!r}")
    return MathQuestion(question, answer, _CALCULATOR.sub("", steps).strip(), answer, _id(fields, question))


def read_math(fields: Mapping[str, Any]) -> MathQuestion:
    """Raises BadRow."""
    question = _text(fields, "problem" if fields.get("problem") is not None else "question")
    solution = fields.get("solution")
    steps = solution.strip() if isinstance(solution, str) else ""
    given = fields.get("answer")
    answer = str(given).strip() if isinstance(given, str | int | float) and not isinstance(given, bool) else ""
    answer = answer or last_boxed(steps) or ""
    if not answer:
        raise BadRow("has neither an answer nor a solution with \\boxed{}")
    return MathQuestion(question, answer, steps, answer, _id(fields, question))


def read_countdown(fields: Mapping[str, Any]) -> MathQuestion:
    """Raises BadRow."""
    numbers, target = _decoded(fields.get("nums", fields.get("numbers"))), _decoded(fields.get("target"))
    if not isinstance(numbers, list) or len(numbers) < 2 or any(type(one) is not int for one in [*numbers, target]):
        raise BadRow("nums (or numbers) and target must be at least two whole numbers and one")
    if min(numbers) < 0:
        raise BadRow(f"nums has {min(numbers)}; a sum of numbers with signs of their own cannot be checked")
    solution = solve(numbers, target)
    return _countdown(numbers, target, solution, fields)


def of_problem(problem: Problem) -> MathQuestion:
    """A problem that was made."""
    return _countdown(problem.numbers, problem.target, problem.solution, {})


READERS: Mapping[str, Callable[[Mapping[str, Any]], MathQuestion]] = {
    "gsm8k": read_gsm8k, "math": read_math, "countdown": read_countdown,
}


def _countdown(numbers: Any, target: int, solution: Term | None, fields: Mapping[str, Any]) -> MathQuestion:
    *most, last = map(str, numbers)
    question = (
        f"Reach {target} with the numbers {', '.join(most)} and {last}. Use each of them exactly once, with +, -, *, "
        "/ and parentheses."
    )
    extras = {"numbers": list(numbers), "target": target}
    steps, result = ("\n".join(solution.steps), solution.expression) if solution else ("", "")
    return MathQuestion(question, str(target), steps, result, _id(fields, question), extras)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{name} is {'missing' if value is None else 'no text'}")
    return value.strip()


def _decoded(value: Any) -> Any:
    """A number or list, of which a table may hold the JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except ValueError:
        return value


def _id(fields: Mapping[str, Any], question: str) -> str:
    """The row's own or, without one, a digest of its question."""
    given = fields.get("id", fields.get("unique_id"))
    if given is not None:
        return str(given)
    return hashlib.sha256(question.encode()).hexdigest()[:16]
