"""``TASK=ruler``: RULER's tasks, whose answer may have several strings; ``metadata["metric"]`` says how many count.

Evaluation files of RULER name their metric, and so this task. As a training reward it is the same score.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..rewards.exact_match import AnswerStyle
from ..rewards.ruler import STRING_MATCH_ALL, score
from .interface import TaskRow
from .qa import QuestionAnswering


class Ruler(QuestionAnswering):
    headline = "ruler"
    answer_styles = frozenset({AnswerStyle.ANSWER})

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": self._score(reply, row) if row.golds else 0.0}

    def metrics(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"ruler": self._score(reply, row)}

    def _score(self, reply: str, row: TaskRow) -> float:
        metric = row.metadata.get("metric") or STRING_MATCH_ALL
        return score(metric, self.read_answer(reply), row.golds)
