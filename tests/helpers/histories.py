"""Small questions about histories, and the files that the sifter's stages write of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mem_agent.rewards.sessions import HistoryQuestion, Session, Turn, row_of


def question(number: int, sessions: int = 4, gold: tuple[int, ...] = (1,), words: int = 3) -> HistoryQuestion:
    """Question ``number``; session 1 of 4 is gold, and every session says its own place ``words`` times."""
    said = [Session(f"s{at}", (Turn("user", f"place {at} of {number} " * words),), f"2023/05/{at + 1:02}")
            for at in range(sessions)]
    return HistoryQuestion(f"q{number}", f"What is at place {number}?", (f"thing {number}",), tuple(said),
                           tuple(f"s{at}" for at in gold), "2023/06/01")


def row(asked: HistoryQuestion, **columns: Any) -> dict[str, Any]:
    """As stage 1 leaves it: similarities fall from the last session to the first."""
    similarities = [at / 10 for at in range(len(asked.sessions))]
    return {**row_of(asked), "similarities": similarities, "session_tokens": [20] * len(asked.sessions), **columns}


def write(folder: Path, dataset: str, split: str, rows: list[dict[str, Any]], kind: str = "embed") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dataset}_{split}_{kind}.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    return path
