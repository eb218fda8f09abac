r"""Math questions as training rows and as entries of evaluation files: chat messages, perhaps with solved examples.

Form ``reasoning`` of a question with gold 72 and steps "48 / 2 = 24 ...", one shot, and what a right reply is::

    system     what to reply with, in the form that is asked for
    user       the shot's question
    assistant  <reasoning>\n...\n</reasoning>\n<answer>\n22\n</answer>
    user       the question
    solution   <reasoning>\n48 / 2 = 24 ...\n</reasoning>\n<answer>\n72\n</answer>

Form ``boxed`` ends in ``\boxed{72}``. Shots are drawn for each row by a generator of its own, from seed and question
alone, never the question itself, so neither other rows nor their order change a row.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..rewards.answers import last_boxed
from .math_questions import MathQuestion


class Form(StrEnum):
    """Of a reply."""

    REASONING = "reasoning"
    BOXED = "boxed"


_ANSWERS = {"gsm8k": "the final number", "math": "the final answer", "countdown": "one arithmetic expression"}
_SYSTEM = {
    Form.REASONING: "Work the problem out step by step. Write the steps between <reasoning> and </reasoning>, then {} "
    "and nothing else between <answer> and </answer>, each tag on a line of its own.",
    Form.BOXED: "Work the problem out step by step and end with {} inside \\boxed{{}}.",
}

Messages = list[dict[str, str]]


def system_wording(task: str, form: Form) -> str:
    """The pack's own."""
    return _SYSTEM[form].format(_ANSWERS[task])


def reply(question: MathQuestion, form: Form) -> str:
    """A whole right reply in the form; empty where the data has no steps."""
    if not question.steps:
        return ""
    if form is Form.REASONING:
        return f"<reasoning>\n{question.steps}\n</reasoning>\n<answer>\n{question.result}\n</answer>"
    boxed = last_boxed(question.steps) == question.result
    return question.steps if boxed else f"{question.steps}\n\\boxed{{{question.result}}}"


@dataclass(frozen=True, slots=True)
class Wording:
    """How questions of one file are asked."""

    task: str
    form: Form
    system: str
    """Empty: no such message."""
    system_as_user: bool
    """The system text stands at the head of the first user message."""
    shots: int
    pool: Sequence[MathQuestion]
    """Where shots are drawn from; all have steps."""
    seed: int

    def before(self, question: MathQuestion) -> Messages:
        """The messages before the question, but for a system text that belongs into the question's own."""
        messages: Messages = []
        for shot in self._drawn(question):
            messages += [_said("user", shot.question), _said("assistant", reply(shot, self.form))]
        if not self.system:
            return messages
        if not self.system_as_user:
            return [_said("system", self.system), *messages]
        if messages:
            messages[0] = _said("user", self._headed(messages[0]["content"]))
        return messages

    def asked(self, question: MathQuestion) -> str:
        """The text of the question's message."""
        alone = self.system and self.system_as_user and not self.shots
        return self._headed(question.question) if alone else question.question

    def training_row(self, question: MathQuestion) -> dict[str, Any]:
        solution = reply(question, self.form)
        metadata = {"task": self.task, "ground_truth": [question.answer], "id": question.id, **question.extras}
        return {
            "prompt": [*self.before(question), _said("user", self.asked(question))],
            "label": question.answer,
            "metadata": metadata | ({"solution": solution} if solution else {}),
        }

    def entry(self, question: MathQuestion, index: int) -> dict[str, Any]:
        """Of an evaluation file."""
        own: Mapping[str, Any] = {"metadata": dict(question.extras)} if question.extras else {}
        return {
            "index": index, "id": question.id, "messages": self.before(question), "input": self.asked(question),
            "answers": [question.answer], "task": self.task, **own,
        }

    def _drawn(self, question: MathQuestion) -> list[MathQuestion]:
        if not self.shots:
            return []
        # One more than is needed, for the question itself may be among them.
        rng = random.Random(f"{self.seed}/shots/{question.question}")
        drawn = rng.sample(self.pool, min(self.shots + 1, len(self.pool)))
        return [shot for shot in drawn if shot.question != question.question][: self.shots]

    def _headed(self, text: str) -> str:
        return f"{self.system}\n\n{text}"


def _said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}
