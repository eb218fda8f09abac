"""Files of the sifter's stages, made by hand: what each column says is up to the test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TALKS = ("the key is red", "Ben sleeps a lot", "we ate fish", "it rained in Lyon")


def history(id: str, gold: Sequence[str], **columns: Any) -> dict[str, Any]:
    """A question about four sessions a, b, c, d."""
    sessions = [[{"role": "user", "content": talk}] for talk in TALKS]
    return {
        "question_id": id, "question": "Where is the key?", "question_type": "one", "answer": "red",
        "answers": ["red"],
        "haystack_sessions": json.dumps(sessions), "haystack_session_ids": list("abcd"),
        "answer_session_ids": list(gold), "all_options": [], **columns,
    }


def embed_row(id: str, gold: Sequence[str], similarities: Sequence[float] | None, **columns: Any) -> dict[str, Any]:
    return history(id, gold, similarities=similarities, **columns)


def ranking_row(
    id: str, gold: Sequence[str], similarities: Sequence[float], ranking: Sequence[int], *, error: str = "",
    status: str = "ok", kept: Sequence[int] = (0, 1, 2, 3), **columns: Any,
) -> dict[str, Any]:
    return embed_row(
        id, gold, similarities, haystack_session_gen_rankings=list(ranking), ranking_error=error, rank_status=status,
        prefiltered_session_idx=list(kept), generated_text="", **columns,
    )


def chat_row(id: str, said: str, *, status: str = "ok", **columns: Any) -> dict[str, Any]:
    own = {"predicted_answer": said, "generated_text": said, "api_status": status, "shown_session_idx": [0],
           "shown_tokens": 10 * len(said)}
    return history(id, ["a"], **own | columns)


def write_stage(folder: Path, rows: Sequence[dict[str, Any]], kind: str, part: str = "locomo_test") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{part}_{kind}.parquet"
    texts = pa.list_(pa.string())
    table = pa.Table.from_pylist(list(rows))
    for name in ("answer_session_ids", "all_options", "answers"):
        number = table.schema.get_field_index(name)
        table = table.set_column(number, name, table[name].cast(texts))
    pq.write_table(table, path)
    return path


def small_results(root: Path) -> Path:
    """Four questions: stage 1 by ``mini``, stage 2 by ``ranker``, answers of ``chat`` under three methods."""
    gold = {"q1": "a", "q2": "b", "q3": "cd", "q4": ""}
    similar = {id: [0.1, 0.9, 0.3, 0.2] for id in ("q1", "q2", "q3")} | {"q4": [0.0, 0.0, 0.0, 0.0]}
    kinds = {"q1": "one", "q2": "two", "q3": "two", "q4": "one"}
    write_stage(root / "mini", [embed_row(q, gold[q], similar[q], question_type=kinds[q]) for q in gold], "embed")
    ranked = {"q1": [0, 1, 2, 3], "q2": [1, 0, 2, 3], "q3": [2], "q4": []}
    write_stage(root / "ranker", [
        ranking_row("q1", gold["q1"], similar["q1"], ranked["q1"], question_type="one"),
        ranking_row("q2", gold["q2"], similar["q2"], ranked["q2"], question_type="two"),
        ranking_row("q3", gold["q3"], similar["q3"], ranked["q3"], error="1 sessions, expected 4", kept=[1, 2],
                    question_type="two"),
        ranking_row("q4", gold["q4"], similar["q4"], ranked["q4"], status="timeout: 3 tries", question_type="one"),
    ], "ranking")
    for method, said in {"mini": ["red", "blue", "the red key"], "ranker": ["red", "red", "red"],
                         "full": ["red", "", "red"]}.items():
        rows = [chat_row(f"q{n}", text, status="ok" if text else "timeout: 3 tries", question_type=kinds[f"q{n}"])
                for n, text in enumerate(said, 1)]
        write_stage(root / "chat" / method, rows, "chat")
    return root
