"""``TASK=ruler``: RULER's tasks, whose answer may have several strings; ``metadata["metric"]`` says how many count.

Evaluation files of RULER name their metric, and so this task. Evaluation reads the whole reply, as RULER does. The
training reward is the same score of the last box: paid for the whole reply, a model would learn to name all it read.

For the QA tasks evaluation also measures ``sub_em_first_gold``, with which MemAgent's table scores them: answer inside
gold or gold inside answer, against the first gold alone (``ruler_general.py``, 76b7a65).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..rewards.boxed import last_boxed
from ..rewards.exact_match import AnswerStyle
from ..rewards.qa_metrics import sub_em_legacy
from ..rewards.ruler import FIRST_GOLD, STRING_MATCH_ALL, STRING_MATCH_PART, score
from .interface import TaskRow
from .qa import QuestionAnswering


class Ruler(QuestionAnswering):
    headline = "ruler"
    answer_styles = frozenset({AnswerStyle.ANSWER})
    reads_whole = True

    def read_answer(self, reply: str) -> str:
        return reply

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": score(_metric(row), last_boxed(reply), row.golds) if row.golds else 0.0}

    def metrics(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        answer, metric = self.read_answer(reply), _metric(row)
        first = {FIRST_GOLD: sub_em_legacy(answer, row.golds[:1])} if metric == STRING_MATCH_PART else {}
        return {"ruler": score(metric, answer, row.golds), **first}


def _metric(row: TaskRow) -> str:
    return row.metadata.get("metric") or STRING_MATCH_ALL
