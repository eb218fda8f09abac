"""Files of the sifter's stages, made by hand: what each column says is up to the test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .stage_rows import write_rows

TALKS = ("the key is red", "Ben sleeps a lot", "we ate fish", "it rained in Lyon")


def embed_row(id: str, gold: str, similarities: Sequence[float] | None, **columns: Any) -> dict[str, Any]:
    """A question about four sessions a, b, c, d."""
    sessions = [[{"role": "user", "content": talk}] for talk in TALKS]
    return {
        "question_id": id, "question": "Where is the key?", "answers": ["red"], "similarities": similarities,
        "haystack_sessions": json.dumps(sessions), "haystack_session_ids": list("abcd"),
        "answer_session_ids": list(gold), "all_options": [], **columns,
    }


def ranking_row(
    id: str, gold: str, similarities: Sequence[float], ranking: Sequence[int], *, error: str = "", status: str = "ok",
    kept: Sequence[int] = (0, 1, 2, 3),
) -> dict[str, Any]:
    return embed_row(id, gold, similarities, haystack_session_gen_rankings=list(ranking), ranking_error=error,
                     rank_status=status, prefiltered_session_idx=list(kept))


def chat_row(id: str, said: str, **columns: Any) -> dict[str, Any]:
    """An answer, and where nothing is said a failure."""
    own = {"predicted_answer": said, "api_status": "ok" if said else "timeout: y", "shown_tokens": 10 * len(said)}
    return embed_row(id, "a", [1, 0, 0, 0.0], **own | columns)


def write_stage(folder: Path, rows: Sequence[dict[str, Any]], kind: str) -> None:
    write_rows(folder / f"locomo_test_{kind}.parquet", list(rows))


def small_results(root: Path) -> Path:
    """Four questions: stage 1 by ``mini``, stage 2 by ``ranker``, answers of ``chat`` under three methods."""
    similar, none = [0.1, 0.9, 0.3, 0.2], [0.0] * 4
    gold = {"q1": "a", "q2": "b", "q3": "cd", "q4": ""}
    write_stage(root / "mini", [embed_row(q, gold[q], similar if gold[q] else none) for q in gold], "embed")
    write_stage(root / "ranker", [
        ranking_row("q1", "a", similar, [0, 1, 2, 3]), ranking_row("q2", "b", similar, [1, 0, 2, 3]),
        ranking_row("q3", "cd", similar, [2], error="1 sessions, expected 4", kept=[1, 2]),
        ranking_row("q4", "", none, [], status="timeout: 3 tries"),
    ], "ranking")
    for method, said in {"mini": ["red", "blue", "the red key"], "ranker": ["red", "red", "red"],
                         "full": ["red", "", "red"]}.items():
        write_stage(root / "chat" / method, [chat_row(f"q{n}", text) for n, text in enumerate(said, 1)], "chat")
    return root
