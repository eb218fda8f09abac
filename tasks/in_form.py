"""Tasks without a document whose replies reason first and then answer, in a form (``rewards/reply_form.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import ClassVar

from ..rewards.boxed import last_boxed
from ..rewards.reply_form import FORM_PARTS, Form, answer_place, form_shares, in_form, reasoning_of
from ..system.errors import ConfigError
from .interface import Task, TaskRow


@dataclass(frozen=True)
class FormSettings:
    """What every task that reasons and answers in a form can be told."""

    form: str = Form.REASONING.value
    correct: float = 1.0
    strict_format: float = 0.05
    soft_format: float = 0.05
    tags: float = 0.05

    def __post_init__(self) -> None:
        if self.form not in set(Form):
            raise ConfigError(f"TASK_ARGS: form={self.form!r}: allowed: {', '.join(Form)}")
        for name, worth in ((f.name, getattr(self, f.name)) for f in fields(self)):
            if isinstance(worth, float) and not isfinite(worth):
                raise ConfigError(f"TASK_ARGS: {name}={worth}: allowed: a number")
        if self.correct <= 0:
            raise ConfigError(f"TASK_ARGS: correct={self.correct}: allowed: a number above 0")


class FormTask(Task):
    """A task without a document whose replies have the form of ``rewards/reply_form.py``."""

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
        if mark and "<answer>" not in given and last_boxed(given) is None:
            return in_form(self.form, reasoning.strip(), answer.strip())
        return given

    @property
    def form(self) -> Form:
        return Form(self.settings.form)

    @staticmethod
    def whole(reply: str, row: TaskRow) -> str:
        """The reply with what it went on from, which may hold the beginning of its form."""
        return str(row.metadata.get("reply_prefix") or "") + reply

    def parts(self, reply: str, *, right: bool) -> dict[str, float]:
        """``correct``, and what else has a weight."""
        weights = {name: getattr(self.settings, name, 0.0) for name in FORM_PARTS}
        shares = form_shares(self.form, reply)
        formal = {name: weights[name] * share for name, share in shares.items() if weights[name]}
        return {"correct": self.settings.correct * right, **formal}

    def in_form(self, reply: str) -> float:
        """1 for a reply in the form that is asked for, its line breaks aside."""
        return form_shares(self.form, reply)["soft_format"]
