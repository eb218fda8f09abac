"""What stage 2 did to a split, on one line: replies, and how far up the gold sessions are before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from ..blocks.block_reader import read_rows
from ..blocks.worker import OK
from ..table import KEPT, by_model, by_similarity

_READ = ["similarities", "prefiltered_session_idx", "haystack_session_gen_rankings", "ranking_error", "rank_status",
         "haystack_session_ids", "answer_session_ids"]
_TOLD = ("recall@1", "recall@5", "recall@10", "ndcg@5")
_ROWS = 1_000
"""Read at a time; none has its history."""


def summary(file: Path) -> tuple[str, int]:
    """The line of a stage 2 file, and how many of its rows have no reply."""
    rows = failed = valid = named = 0
    scores: dict[str, list[float]] = {}
    for row in _rows(file):
        rows += 1
        ranked = row.get("rank_status") == OK
        failed += not ranked
        valid += ranked and not row.get("ranking_error")
        named += bool(row.get("haystack_session_gen_rankings"))
        for name, value in _scores(row).items():
            scores.setdefault(name, []).append(value)
    told = ", ".join(f"{name} {100 * fmean(values):.1f}" for name, values in scores.items())
    counts = f"{rows - failed} of {rows} questions ranked, {valid} validly, {named} usably, {failed} failed"
    return counts + (f"; in percent: {told}" if told else "; no row says which sessions are gold"), failed


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    for rows in read_rows(file, _READ, _ROWS):
        yield from rows


def _scores(row: Mapping[str, Any]) -> dict[str, float]:
    """As the table has them (``sifter_table``): a row without a reply has the order of similarity."""
    similar, ranked = by_similarity(row).scores, by_model(row).scores
    kept = {"gold shown to the ranker": ranked[KEPT]} if KEPT in ranked else {}
    named = {name: name.replace("ndcg", "NDCG") for name in _TOLD if name in ranked}
    orders = {"by similarity": similar, "ranked": ranked}
    return kept | {f"{told} {order}": scores[name] for name, told in named.items() for order, scores in orders.items()}
