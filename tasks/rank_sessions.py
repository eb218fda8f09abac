r"""``TASK=rank_sessions``: which sessions of a history a question needs; the reply names their numbers, best first.

    shown 12 sessions, gold 3 and 7     reply <ranking>7,0,3,1,2,4,5,6,8,9</ranking>
    reward    ranking 0.92              metrics   ndcg@1 1, ndcg@10 0.92, recall@1 0.5, mrr 1, valid 1

The prompt is a chat message (``AGENT=chat``) and shows the sessions itself, so there is no document. A row has
``shown``, their number, and ``gold``, the numbers of those that hold the answer, in its metadata.

Training reads a reply strictly (``sessions/ranking.py``): what is no valid ranking is worth ``-invalid`` and nothing
else, and is charged for length as the longest reply, so it is worth less than any valid one. Evaluation measures what
can be used of a reply, as inference uses it, and tells how many are ``valid``.

``score=dcg`` is the warm-up reward as released: the gain of the hits over the number of golds, without the best
possible order as a measure, so two golds can earn 0.82 at most (``rewards/ranking_metrics.py``).

Source: MemSifter, arXiv 2603.03379, ``genrank_reward_score.py``; there a malformed reply is worth 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar, Self

from ..rewards.ranking_metrics import anchor_score, ndcg_at, recall_at, reciprocal_rank
from ..sessions.ranking import ASKED, BadRanking, lenient_ranking, strict_ranking
from ..sessions.table import BadRow
from ..system.errors import ConfigError
from .interface import Task, TaskRow

CUTS = (1, 5, 10)
_MOST = 1e6
"""Of a cost: rewards and their squares stay numbers in float32."""
_ANY = 10**9
"""More sessions than any prompt shows."""


SCORES = {"ndcg": ndcg_at, "dcg": anchor_score}


@dataclass(frozen=True)
class RankSettings:
    score: str = "ndcg"
    """What a valid ranking is worth: ndcg, or dcg as released."""
    at: int = 10
    """Places that count."""
    invalid: float = 1.0
    """What a reply costs that is no valid ranking."""

    def __post_init__(self) -> None:
        if self.score not in SCORES:
            raise ConfigError(f"TASK_ARGS: score={self.score!r}: allowed: {', '.join(SCORES)}")
        if self.at < 1:
            raise ConfigError(f"TASK_ARGS: at={self.at}: allowed: a whole number from 1 on")
        if not 0 < self.invalid <= _MOST:
            raise ConfigError(f"TASK_ARGS: invalid={self.invalid}: allowed: a number above 0, at most {_MOST:g}")


class RankSessions(Task):
    Settings: ClassVar[type] = RankSettings
    needs_document = False
    headline = "ndcg@10"
    outcome = "ranking"
    _reads: bool = True

    def of_answers(self) -> Self:
        read = super().of_answers()
        read._reads = False
        return read

    def read_answer(self, reply: str) -> str:
        """The usable numbers of the ranking, whatever their range."""
        return ",".join(map(str, lenient_ranking(reply, _ANY)))

    def malformed(self, reply: str, row: TaskRow) -> bool:
        return ranking_of(reply, row) is None

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        ranking = ranking_of(reply, row)
        if ranking is None:
            return {"format": -self.settings.invalid}
        return {"ranking": SCORES[self.settings.score](ranking, _numbers(row), self.settings.at)}

    def metrics(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        shown, gold = shown_of(row), _numbers(row)
        whole = reply if self._reads or "<ranking>" in reply else f"<ranking>{reply}</ranking>"
        ranking = lenient_ranking(whole, shown)
        return {
            **{f"ndcg@{k}": ndcg_at(ranking, gold, k) for k in CUTS},
            **{f"recall@{k}": recall_at(ranking, gold, k) for k in CUTS},
            "mrr": reciprocal_rank(ranking, gold), "valid": float(ranking_of(whole, row) is not None),
        }

    def solution(self, row: TaskRow) -> str:
        if given := super().solution(row):
            return given
        shown, gold = shown_of(row), sorted(_numbers(row))
        others = (number for number in range(shown) if number not in gold)
        best = list(islice(chain(gold, others), min(ASKED, shown)))
        return f"<ranking>{','.join(map(str, best))}</ranking>"


def ranking_of(reply: str, row: TaskRow) -> tuple[int, ...] | None:
    """The valid ranking in a reply; None where there is none. Raises BadRow."""
    try:
        return strict_ranking(reply, shown_of(row))
    except BadRanking:
        return None


def shown_of(row: TaskRow) -> int:
    """How many sessions the prompt shows. Raises BadRow."""
    shown = row.metadata.get("shown")
    if isinstance(shown, int) and not isinstance(shown, bool) and shown > 0:
        return shown
    raise BadRow(f"a row of rank_sessions needs metadata.shown, the number of its sessions; it has {shown!r:.60}")


def _numbers(row: TaskRow) -> frozenset[int]:
    gold, shown = row.metadata.get("gold"), shown_of(row)
    if isinstance(gold, list | tuple) and gold and all(type(g) is int and 0 <= g < shown for g in gold):
        return frozenset(gold)
    raise BadRow(
        f"a row of rank_sessions needs metadata.gold, numbers of some of its {shown} sessions; it has {gold!r:.60}"
    )
