"""What stage 2 did to a split, on one line: replies, and how far up the gold sessions are before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from ...rewards.ranking_metrics import ndcg_at, recall_at
from ...sessions.packing import by_score
from ...sessions.ranking import completed
from ..blocks.block_reader import read_rows
from ..blocks.worker import OK

_READ = ["similarities", "prefiltered_session_idx", "haystack_session_gen_rankings", "ranking_error", "rank_status",
         "haystack_session_ids", "answer_session_ids"]
_CUTS = (1, 5, 10)
_ROWS = 1_000
"""Read at a time; none has its history."""


def summary(file: Path) -> tuple[str, int]:
    """The line of a stage 2 file, and how many of its rows have no reply."""
    rows = failed = valid = named = 0
    scores: dict[str, list[float]] = {}
    for row in _rows(file):
        rows += 1
        failed += row["rank_status"] != OK
        valid += row["rank_status"] == OK and not row["ranking_error"]
        named += bool(row["haystack_session_gen_rankings"])
        for name, value in _scores(row).items():
            scores.setdefault(name, []).append(value)
    told = ", ".join(f"{name} {100 * fmean(values):.1f}" for name, values in scores.items())
    counts = f"{rows - failed} of {rows} questions ranked, {valid} validly, {named} usably, {failed} failed"
    return counts + (f"; in percent: {told}" if told else "; no row says which sessions are gold"), failed


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    for rows in read_rows(file, _READ, _ROWS):
        yield from rows


def _scores(row: Mapping[str, Any]) -> dict[str, float]:
    """Of a row that names gold; a row without a reply has the order of similarity."""
    ids = {str(name): position for position, name in enumerate(row.get("haystack_session_ids") or ())}
    gold = [ids[name] for name in map(str, row.get("answer_session_ids") or ()) if name in ids]
    if not gold:
        return {}
    similar = by_score(row["similarities"] or ())
    ranked = completed(row["haystack_session_gen_rankings"] or (), similar)
    orders = {"by similarity": similar, "ranked": ranked}
    kept = {"gold shown to the ranker": len(set(gold) & set(row["prefiltered_session_idx"] or ())) / len(set(gold))}
    recall = {f"recall@{k} {name}": recall_at(order, gold, k) for k in _CUTS for name, order in orders.items()}
    return kept | recall | {f"NDCG@5 {name}": ndcg_at(order, gold, 5) for name, order in orders.items()}
