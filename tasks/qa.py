r"""``TASK=qa``: one answer, right if it equals any of the golds; and ``TASK=ruler``, RULER's tasks.

    reply "... \boxed{the Beatles}", gold Beatles    reward: answer 1    metrics: em 1, f1 1, sub_em 1, sub_em_legacy 1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from ..rewards.answers import last_boxed, the_answer_is
from ..rewards.exact_match import boxed_exact_match
from ..rewards.qa_metrics import score_answer, sub_em_legacy
from ..rewards.ruler import FIRST_GOLD, STRING_MATCH_ALL, STRING_MATCH_PART, score
from .interface import Task, TaskRow

READERS: Mapping[str, Callable[[str], str | None]] = {
    "boxed": last_boxed, "the_answer_is": the_answer_is, "whole": str,
}
"""The last box; what follows the last "the answer is" (MemAgent's evaluation); all of the reply."""


@dataclass(frozen=True)
class ReadSettings:
    answer: Literal["boxed", "the_answer_is", "whole"] = "boxed"
    """How evaluation reads an answer."""


@dataclass(frozen=True)
class QaSettings(ReadSettings):
    reward: Literal["answer", "published", "published_f1"] = "answer"
    """The rule by which an answer is right in training (``rewards/exact_match.py``)."""


class QuestionAnswering(Task):
    Settings: ClassVar[type] = QaSettings
    headline = "sub_em"

    @property
    def reads_whole(self) -> bool:
        return bool(self.settings.answer == "whole")

    def read_answer(self, reply: str) -> str:
        return READERS[self.settings.answer](reply) or ""

    def solution(self, row: TaskRow) -> str:
        return super().solution(row) or (f"\\boxed{{{row.golds[0]}}}" if row.golds else "")

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": boxed_exact_match(reply, row.golds, self.settings.reward) if row.golds else 0.0}

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        return score_answer(answer, row.golds)


@dataclass(frozen=True)
class RulerSettings(ReadSettings):
    answer: Literal["boxed", "the_answer_is", "whole"] = "whole"


class Ruler(QuestionAnswering):
    """RULER's tasks, whose answer may have several strings; ``metadata["metric"]`` says how many count.

    Evaluation files of RULER name their metric, and so this task. Evaluation reads the whole reply, as RULER does. The
    training reward is the same score of the last box: paid for the whole reply, a model would learn to name all it
    read.

    For the QA tasks evaluation also measures ``sub_em_first_gold``, with which MemAgent's table scores them: answer
    inside gold or gold inside answer, against the first gold alone (``ruler_general.py``, 76b7a65).
    """

    Settings = RulerSettings
    headline = "ruler"

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": score(_metric(row), last_boxed(reply), row.golds) if row.golds else 0.0}

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        metric = _metric(row)
        first = {FIRST_GOLD: sub_em_legacy(answer, row.golds[:1])} if metric == STRING_MATCH_PART else {}
        return {"ruler": score(metric, answer, row.golds), **first}


def _metric(row: TaskRow) -> str:
    return row.metadata.get("metric") or STRING_MATCH_ALL
