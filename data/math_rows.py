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
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml

from ..rewards.answers import last_boxed
from .countdown import Term, problems, solve
from .rows import BadRow

TEXTS: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
FORMS: Sequence[str] = tuple(TEXTS["system"])
_CALCULATOR = re.compile(r"<<[^<>]*>>")
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


# --- rows in ---------------------------------------------------------------------------------------------------------
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
    solution, given = fields.get("solution"), fields.get("answer")
    steps = solution.strip() if isinstance(solution, str) else ""
    answer = str(given).strip() if isinstance(given, str | int | float) and not isinstance(given, bool) else ""
    answer = answer or last_boxed(steps) or ""
    if not answer:
        raise BadRow("has neither an answer nor a solution with \\boxed{}")
    return MathQuestion(question, answer, steps, answer, _id(fields, question))


def read_countdown(fields: Mapping[str, Any]) -> MathQuestion:
    """A table may hold the JSON text of the numbers. Raises BadRow."""
    numbers, target = fields.get("nums", fields.get("numbers")), fields.get("target")
    with suppress(ValueError):
        numbers = orjson.loads(numbers) if isinstance(numbers, str) else numbers
        target = orjson.loads(target) if isinstance(target, str) else target
    whole = isinstance(numbers, list) and all(type(one) is int for one in numbers)
    if not whole or len(numbers) < 2 or type(target) is not int:
        raise BadRow("nums (or numbers) and target must be at least two whole numbers and one")
    if min(numbers) < 0:
        raise BadRow(f"nums has {min(numbers)}; a sum of numbers with signs of their own cannot be checked")
    return _countdown(numbers, target, solve(numbers, target), fields)


READERS: Mapping[str, Callable[[Mapping[str, Any]], MathQuestion]] = {
    "gsm8k": read_gsm8k, "math": read_math, "countdown": read_countdown,
}


def made_problems(number: int, seed: int | str) -> list[MathQuestion]:
    """Countdown problems that have solutions."""
    return [_countdown(each.numbers, each.solution.value, each.solution, {}) for each in problems(number, seed)]


def examples(task: str) -> list[MathQuestion]:
    """Solved ones of the pack's own."""
    if task == "countdown":
        return made_problems(8, "exemplars")
    return [read_gsm8k(example) for example in TEXTS["examples"]]


def _countdown(
    numbers: Sequence[int], target: int, solution: Term | None, fields: Mapping[str, Any]
) -> MathQuestion:
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
def system_wording(task: str, form: str) -> str:
    """The pack's own."""
    return TEXTS["system"][form].format(answer=TEXTS["answer"][task])


def solution_of(question: MathQuestion, form: str) -> str:
    """A whole right reply in the form; empty where the data has no steps."""
    if not question.steps:
        return ""
    if form == "reasoning":
        return f"<reasoning>\n{question.steps}\n</reasoning>\n<answer>\n{question.result}\n</answer>"
    is_boxed = last_boxed(question.steps) == question.result
    return question.steps if is_boxed else f"{question.steps}\n\\boxed{{{question.result}}}"


@dataclass(frozen=True, slots=True)
class Wording:
    """How questions of one file are asked."""

    task: str
    form: str
    system: str
    """Empty: no such message."""
    system_as_user: bool
    """The system text stands at the head of the first user message."""
    shots: int
    pool: Sequence[MathQuestion]
    """Where shots are drawn from; all have steps."""
    seed: int

    def training_row(self, question: MathQuestion) -> dict[str, Any]:
        metadata = {"task": self.task, "ground_truth": [question.answer], "id": question.id, **question.extras}
        if solution := solution_of(question, self.form):
            metadata["solution"] = solution
        return {"prompt": self._messages(question), "label": question.answer, "metadata": metadata}

    def entry(self, question: MathQuestion, index: int) -> dict[str, Any]:
        """Of an evaluation file."""
        *before, asked = self._messages(question)
        entry = {"index": index, "id": question.id, "messages": before, "input": asked["content"],
                 "answers": [question.answer], "task": self.task}
        return entry | ({"metadata": dict(question.extras)} if question.extras else {})

    def _messages(self, question: MathQuestion) -> list[dict[str, str]]:
        """The question is the last one."""
        texts: list[str] = []
        for shot in self._drawn(question):
            texts += [shot.question, solution_of(shot, self.form)]
        texts.append(question.question)
        if self.system and self.system_as_user:
            texts[0] = f"{self.system}\n\n{texts[0]}"
        messages = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
        if self.system and not self.system_as_user:
            messages.insert(0, {"role": "system", "content": self.system})
        return messages

    def _drawn(self, question: MathQuestion) -> list[MathQuestion]:
        """The row's shots, never the question itself, by a generator of its own, from seed and question alone: neither
        other rows nor their order change a row.
        """
        if not self.shots:
            return []
        # One more than is needed, for the question itself may be among them.
        rng = random.Random(f"{self.seed}/shots/{question.question}")
        drawn = rng.sample(self.pool, min(self.shots + 1, len(self.pool)))
        return [shot for shot in drawn if shot.question != question.question][: self.shots]
