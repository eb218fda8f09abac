r"""``TASK=rank_sessions``: which sessions of a history a question needs; the reply names their numbers, best first.

    shown 12 sessions, gold 3 and 7     reply <ranking>7,0,3,1,2,4,5,6,8,9</ranking>
    reward    ranking 0.92              metrics   ndcg@1 1, ndcg@10 0.92, recall@1 0.5, mrr 1, valid 1

The prompt is a chat message (``AGENT=chat``) and shows the sessions itself, so there is no document. A row has
``shown``, their number, and ``gold``, the numbers of those that hold the answer, in its metadata.

Training reads a reply strictly (``rewards/sessions.py``): what is no valid ranking is worth -1 and nothing
else, and is charged for length as the longest reply, so it is worth less than any valid one. Evaluation measures what
can be used of a reply, as inference uses it, and tells how many are ``valid``.

Source: MemSifter, arXiv 2603.03379, ``genrank_reward_score.py``; there a malformed reply is worth 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..rewards.ranking import ndcg_at, recall_at, reciprocal_rank
from ..rewards.sessions import ASKED, BadRanking, BadRow, lenient_ranking, strict_ranking
from .interface import Task, TaskRow

CUTS = (1, 5, 10)


class RankSessions(Task):
    needs_document = False
    headline = "ndcg@10"
    outcome = "ranking"

    def read_answer(self, reply: str) -> str:
        """The usable numbers of the ranking, whatever their range."""
        return ",".join(map(str, lenient_ranking(reply, 10**9)))

    def malformed(self, reply: str, row: TaskRow) -> bool:
        return _valid(reply, row) is None

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        ranking = _valid(reply, row)
        return {"format": -1.0} if ranking is None else {"ranking": ndcg_at(ranking, _asked(row)[1], CUTS[-1])}

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        shown, gold = _asked(row)
        ranking = lenient_ranking(reply, shown)
        found = {"mrr": reciprocal_rank(ranking, gold), "valid": float(_valid(reply, row) is not None)}
        for k in CUTS:
            found |= {f"ndcg@{k}": ndcg_at(ranking, gold, k), f"recall@{k}": recall_at(ranking, gold, k)}
        return found

    def solution(self, row: TaskRow) -> str:
        shown, gold = _asked(row)
        best = sorted(range(shown), key=lambda number: (number not in gold, number))[:ASKED]
        return super().solution(row) or f"<ranking>{','.join(map(str, best))}</ranking>"


def _valid(reply: str, row: TaskRow) -> tuple[int, ...] | None:
    """The valid ranking in a reply; None where there is none. Raises BadRow."""
    try:
        return strict_ranking(reply, _asked(row)[0])
    except BadRanking:
        return None


def _asked(row: TaskRow) -> tuple[int, frozenset[int]]:
    """How many sessions the prompt shows, and the numbers of the gold ones. Raises BadRow."""
    shown, gold = row.metadata.get("shown"), row.metadata.get("gold")
    if not isinstance(shown, int) or not gold or not set(gold) <= set(range(shown)):
        raise BadRow(f"a row of rank_sessions needs metadata.shown and .gold; it has {shown!r:.60} and {gold!r:.60}")
    return shown, frozenset(gold)
