r"""``TASK=gsm8k`` and ``TASK=math``: a question with one answer, a number or anything that LaTeX can write.

    gold 18, reply "<reasoning>\n9 * 2\n</reasoning>\n<answer>\n18\n</answer>"
    reward    correct 1, integer .05, strict_format .05, soft_format .05, tags .05
    metrics   strict 1, medium 1, loose 1, exact 1, format 1

Both names are one task. ``rewards/math_answer.py`` says what each mode takes, ``rewards/reply_form.py`` what the parts
of the form are. A row's gold is its answer; its ``solution``, if it has one, a whole reply that is right, or reasoning
that ends in ``#### 18`` as GSM8K's.

TASK_ARGS, words ``name=value``:

- ``form``: ``reasoning`` or ``boxed``, which the form's parts and ``format`` go by. An answer is read from either;
- ``mode``: whose rightness is ``correct`` in training: ``medium``, ``strict``, ``loose`` or ``exact``;
- ``correct``, ``integer``, ``strict_format``, ``soft_format``, ``tags``: what each part is worth. Published: 1,
  .5, .5, .5, .5, by which a wrong reply of the right form earns 2 of 3. Here the form has a tenth of that, a fifth of
  a right answer in all: no wrong reply is better than a right one, and where all siblings are wrong the form is still
  something to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..rewards.math_answer import Mode, alone_in_its_place, is_right
from ..rewards.reply_form import in_form
from ..system.errors import ConfigError
from .in_form import FormSettings, FormTask
from .interface import TaskRow


@dataclass(frozen=True)
class MathSettings(FormSettings):
    mode: str = Mode.MEDIUM.value
    integer: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode not in set(Mode):
            raise ConfigError(f"TASK_ARGS: mode={self.mode!r}: allowed: {', '.join(Mode)}")


class MathAnswer(FormTask):
    Settings = MathSettings
    headline = "medium"
    slow = True

    def read_answer(self, reply: str) -> str:
        return alone_in_its_place(reply)

    def solution(self, row: TaskRow) -> str:
        return super().solution(row) or (in_form(self.form, "", row.golds[0]) if row.golds else "")

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        reply = self.whole(reply, row)
        return self.parts(reply, right=is_right(self.settings.mode, reply, row.golds))

    def metrics(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        reply = self.whole(reply, row)
        place = self.read_answer(reply)
        right = {mode.value: float(is_right(mode, reply, row.golds, place)) for mode in Mode}
        return right | {"format": self.in_form(reply)}
