r"""``TASK=qa``: one boxed answer, right if it equals any of the golds; in training as MEM_REWARD says.

    reply "... \boxed{the Beatles}", gold Beatles    reward: answer 1    metrics: em 1, f1 1, sub_em 1, sub_em_legacy 1
"""

from __future__ import annotations

from collections.abc import Mapping

from ..rewards.boxed import last_boxed
from ..rewards.exact_match import AnswerStyle, boxed_exact_match
from ..rewards.qa_metrics import score_answer
from .interface import Task, TaskRow


class QuestionAnswering(Task):
    headline = "sub_em"
    answer_styles = frozenset(AnswerStyle)

    def read_answer(self, reply: str) -> str:
        return last_boxed(reply) or ""

    def solution(self, row: TaskRow) -> str:
        return super().solution(row) or (f"\\boxed{{{row.golds[0]}}}" if row.golds else "")

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": boxed_exact_match(reply, row.golds, self.answer_style) if row.golds else 0.0}

    def metrics(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return score_answer(self.read_answer(reply), row.golds)
