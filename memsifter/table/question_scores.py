"""What one question is worth: the order of its sessions against its gold, an answer against its answers.

All scores are shares, 1 at best. A question without gold sessions has no ranking scores, and one without answers no
answer scores: it is not counted there, neither as 0 nor as 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...rewards.ranking import ndcg_at, recall_at, reciprocal_rank
from ...rewards.text_f1 import answer_em, answer_f1, choice_score

CUTOFFS = (1, 5, 10)
RANKING_SCORES = (*(f"ndcg@{k}" for k in CUTOFFS), *(f"recall@{k}" for k in CUTOFFS), f"mrr@{CUTOFFS[-1]}")
VALID, KEPT, KEPT_ALL = "valid", "kept", "kept_all"
ANSWER_SCORES = ("f1", "em", "option")


def ranking_scores(order: Sequence[int], gold: Sequence[int]) -> dict[str, float]:
    """RANKING_SCORES of positions, best first."""
    if not gold:
        return {}
    return {
        **{f"ndcg@{k}": ndcg_at(order, gold, k) for k in CUTOFFS},
        **{f"recall@{k}": recall_at(order, gold, k) for k in CUTOFFS},
        f"mrr@{CUTOFFS[-1]}": reciprocal_rank(order, gold, CUTOFFS[-1]),
    }


def prefilter_scores(kept: Sequence[int], gold: Sequence[int]) -> dict[str, float]:
    """``kept``: the share of gold sessions that a pre-filter left; ``kept_all``: 1 if it left all (MemSifter's)."""
    if not gold:
        return {}
    share = len(set(gold) & set(kept)) / len(set(gold))
    return {KEPT: share, KEPT_ALL: float(share == 1)}


def answer_scores(answer: str | None, answers: Sequence[str], options: Sequence[str]) -> dict[str, float]:
    """``f1`` and ``em``; of a multiple-choice question ``option``, whether the right one is chosen, as well.

    ``answer`` is None where there is no reply: worth 0, as everywhere in this pack, and counted as failed elsewhere.
    """
    if not answers:
        return {}
    found = {"f1": answer_f1(answer, answers), "em": answer_em(answer, answers)}
    chosen = choice_score(answer, answers, options)
    return found if chosen is None else found | {"option": chosen}


def gold_positions(row: Mapping[str, Any]) -> list[int]:
    """Where the gold sessions stand in the history, ascending; ids that the history has not are no positions."""
    gold = set(map(str, row.get("answer_session_ids") or ()))
    return [position for position, id in enumerate(row.get("haystack_session_ids") or ()) if str(id) in gold]
