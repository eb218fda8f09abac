"""Small histories as files of the stages."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mem_agent.rewards.sessions import HistoryQuestion, Language, Session, Turn, render_session, row_of

PLACES = ("Lyon", "Graz", "Turin", "Porto", "Basel", "Krakow")


def history_question(number: int, sessions: int = 6, gold: int | None = 2, **own) -> HistoryQuestion:
    """Session ``gold`` says where the user moved; the others talk of other places."""
    talks = tuple(
        Session(f"s{n}", (Turn("user", f"I {'moved to' if n == gold else 'read about'} {PLACES[n % 6]}, note {n}."),
                          Turn("assistant", f"Good to know, {n}.")), f"2023/05/{n + 1:02d}") for n in range(sessions)
    )
    asked = f"Where have I moved to, number 10{number}?"
    fields = {"id": f"q{number}", "question": asked, "answers": (PLACES[(gold or 0) % 6],), "sessions": talks,
              "gold": () if gold is None else (f"s{gold}",), "date": "2023/06/01"}
    return HistoryQuestion(**(fields | own))


def chinese_question(number: int = 0) -> HistoryQuestion:
    said = ("我昨天去了公园散步。", "我搬到了里昂，住在河边。", "今天晚上想吃面条。")
    talks = tuple(
        Session(f"会话{n}", (Turn("user", text), Turn("assistant", "好的，我记住了。")), f"2023年5月{n + 1}日")
        for n, text in enumerate(said)
    )
    asked = f"我搬到了哪里？（第{number}问）"
    return HistoryQuestion(f"问{number}", asked, ("里昂",), talks, ("会话1",), "2023年6月1日", "", Language.ZH)


def embedded_row(asked: HistoryQuestion, **columns) -> dict:
    """As stage 1 writes it; the gold session is the most similar, then the order of time."""
    similarities = [1.0 if n in asked.gold_positions else 0.5 - 0.01 * n for n in range(len(asked.sessions))]
    tokens = [len(render_session(session, n).split()) for n, session in enumerate(asked.sessions)]
    return row_of(asked) | {"similarities": similarities, "session_tokens": tokens} | columns


def write_rows(path: str | Path, rows: list[dict]) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def read_rows(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()
