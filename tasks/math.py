r"""Tasks without a document whose replies reason first and then answer, in a form (``rewards/answers.py``).

``TASK=gsm8k`` and ``TASK=math``: a question with one answer, a number or anything that LaTeX can write. Both names
are one task::

    gold 18, reply "<reasoning>\n9 * 2\n</reasoning>\n<answer>\n18\n</answer>"
    reward    correct 1, integer .05, strict_format .05, soft_format .05, tags .05
    metrics   strict 1, medium 1, loose 1, exact 1, format 1

``rewards/math_answer.py`` says what each mode takes. A row's gold is its answer; its ``solution``, if it has one, a
whole reply that is right, or reasoning that ends in ``#### 18`` as GSM8K's.

``TASK=countdown``: the target from the given numbers, each used once, by ``+ - * /`` and parentheses::

    numbers 3 5 8 2, target 20, reply "<reasoning>\n...\n</reasoning>\n<answer>\n(5 - 3) * (8 + 2)\n</answer>"
    reward    correct 1, strict_format .05, soft_format .05, tags .05        metrics   right 1, format 1

The row has ``numbers`` and ``target`` in its metadata; without ``target`` its gold is that. The value is exact
(``exact_value``), and nothing of a reply is ever run. Published (Memory-R's ``run_countdown.py`` at 8e0dd1f): 1
for the sum and 1 for the form, thinking in ``<think>``, which here would be cut off a reply before anybody reads it.
It runs the text by ``eval``, where ``9**9**9**9`` hangs, takes ``-3+5`` and ``7//2``, and a value that is off by
0.00001.
"""

from __future__ import annotations

import ast
import operator
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field, FiniteFloat

from ..rewards.answers import Form, answer_place, form_shares, in_form, last_boxed, reasoning_of
from ..rewards.math_answer import MODES, alone_in_its_place, is_right
from ..system.errors import MemAgentError
from .interface import Task, TaskRow


@dataclass(frozen=True)
class FormSettings:
    """What every task that reasons and answers in a form takes from TASK_ARGS: the form, and what each part is worth.

    Published weights are 1 and .5 each, by which a wrong reply of the right form earns 2 of 3. Here the form has a
    tenth of that, a fifth of a right answer in all: no wrong reply is better than a right one, and where all siblings
    are wrong the form is still something to learn.
    """

    form: Form = "reasoning"
    """What the form's parts and ``format`` go by. An answer is read from either."""
    correct: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    strict_format: FiniteFloat = 0.05
    soft_format: FiniteFloat = 0.05
    tags: FiniteFloat = 0.05


@dataclass(frozen=True)
class MathSettings(FormSettings):
    mode: Literal["strict", "medium", "loose", "exact"] = "medium"
    """Whose rightness is ``correct`` in training."""
    integer: FiniteFloat = 0.05


class FormTask(Task):
    """A task whose replies have the form of ``rewards/answers.py``."""

    Settings: ClassVar[type] = FormSettings
    needs_document = False
    outcome = "correct"

    def read_answer(self, reply: str) -> str:
        return answer_place(reply) or ""

    def reasoning(self, reply: str) -> str:
        return reasoning_of(reply)

    def accuracy(self, parts: Mapping[str, float]) -> float:
        return super().accuracy(parts) / self.settings.correct

    def solution(self, row: TaskRow) -> str:
        given = super().solution(row)
        reasoning, mark, answer = given.rpartition("####")
        is_raw = mark and "<answer>" not in given and last_boxed(given) is None
        return in_form(self.settings.form, reasoning.strip(), answer.strip()) if is_raw else given

    @abstractmethod
    def is_right(self, reply: str, row: TaskRow) -> bool:
        """Whether a whole reply has the answer."""

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        """``correct``, and what else has a weight."""
        reply = _whole(reply, row)
        parts = {"correct": self.settings.correct * self.is_right(reply, row)}
        for name, share in form_shares(self.settings.form, reply).items():
            if weight := getattr(self.settings, name, 0.0):
                parts[name] = weight * share
        return parts

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        """``format`` is 1 for a reply in the form that is asked for, its line breaks aside."""
        reply = _whole(reply, row)
        return self.rightness(reply, row) | {"format": form_shares(self.settings.form, reply)["soft_format"]}

    def rightness(self, reply: str, row: TaskRow) -> dict[str, float]:
        """What evaluation measures of a whole reply beside its form."""
        return {"right": float(self.is_right(reply, row))}


class MathAnswer(FormTask):
    Settings = MathSettings
    headline = "medium"
    slow = True

    def read_answer(self, reply: str) -> str:
        return alone_in_its_place(reply)

    def solution(self, row: TaskRow) -> str:
        return super().solution(row) or (in_form(self.settings.form, "", row.golds[0]) if row.golds else "")

    def is_right(self, reply: str, row: TaskRow) -> bool:
        return is_right(self.settings.mode, reply, row.golds)

    def rightness(self, reply: str, row: TaskRow) -> dict[str, float]:
        return {mode: float(is_right(mode, reply, row.golds)) for mode in MODES}


class Countdown(FormTask):
    headline = "right"

    def is_right(self, reply: str, row: TaskRow) -> bool:
        numbers, target = row.metadata.get("numbers"), row.metadata.get("target", row.golds[0] if row.golds else None)
        if not isinstance(numbers, list) or target is None:
            raise MemAgentError(f"a countdown row needs metadata.numbers and .target; it has {numbers!r}, {target!r}")
        value, used = exact_value(self.read_answer(reply)) or (None, [])
        return value == Fraction(str(target)) and sorted(used) == sorted(map(int, numbers))


def _whole(reply: str, row: TaskRow) -> str:
    """The reply with what it went on from, which may hold the beginning of its form."""
    return str(row.metadata.get("reply_prefix") or "") + reply


# --- sums ------------------------------------------------------------------------------------------------------------

_SUM = re.compile(r"[0-9+\-*/() \t\r\n]+")
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}


def exact_value(text: str) -> tuple[Fraction, list[int]] | None:
    """The value of a sum and the numbers in it, from left to right; None where ``text`` is no sum.

    Of whole numbers, ``+ - * /`` and parentheses, nothing else::

        (5 + 3) * 2 / 4  ->  4, from 5 3 2 4        1 / 3 * 3  ->  1        3 - 1 - 1  ->  1

    Everything else is no sum: ``2**10**9``, ``7 // 2``, ``-3 + 5`` (a sign is no operator), ``1e9``, ``0x10``,
    ``2.5``, names, calls, division by zero, two sums, an equation. The text is parsed and never run: a walk over
    Python's syntax tree with exact fractions.
    """
    text = " ".join(text.split())
    if len(text) > 200 or not _SUM.fullmatch(text):
        return None
    try:
        return _value(ast.parse(text, mode="eval").body), list(map(int, re.findall("[0-9]+", text)))
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    raise ValueError("no sum")
