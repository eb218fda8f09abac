"""Rows of ``rank_sessions`` with their stored histories, and trajectories that answer them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.hooks.sample import Sample

from .samples import trajectory, turns_of


def history(count: int, *, gold: int, answer: str = "Lyon") -> str:
    """A stored history of ``count`` sessions, of which number ``gold`` says the answer."""
    said = [f"I live in {answer}." if number == gold else f"I like film {number}." for number in range(count)]
    return orjson.dumps({
        "sessions": [[{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}] for text in said],
        "ids": [f"s{number}" for number in range(count)],
        "dates": [f"2023/05/{number + 1:02}" for number in range(count)],
    }).decode()


def metadata(history_id: str, count: int, *, gold: int, answer: str = "Lyon", **fields: Any) -> dict[str, Any]:
    return {
        "task": "rank_sessions", "id": f"q-{history_id}", "shown": count, "gold": [gold],
        "question": "Where do I live?", "question_date": "", "language": "en", "answers": [answer],
        "history_id": history_id, "session_tokens": [20] * count, **fields,
    }


def stored_rows(train_data: str | Path, golds: list[int], count: int = 12) -> list[dict[str, Any]]:
    """The metadata of a row for each gold, their histories in the store beside ``train_data``."""
    documents, answers = DocumentStore(store_folder(train_data)), [f"Lyon{number}" for number in range(len(golds))]
    ids = [documents.add(history(count, gold=g, answer=a)) for g, a in zip(golds, answers, strict=True)]
    return [metadata(i, count, gold=g, answer=a) for i, g, a in zip(ids, golds, answers, strict=True)]


def ranked(row: dict[str, Any], reply: str, index: int, group: int, tokens: int = 8) -> Sample:
    """A trajectory that ended with ``reply``, not yet scored."""
    return trajectory(
        turns_of([tokens]), reward=None, counts={"rounds": 0, "chunks": 0}, index=index, group_index=group,
        response=reply, prompt="rank them", label="", metadata=row,
    )


def naming(first: int, count: int = 12, place: int = 1, asked: int = 10) -> str:
    """A valid ranking in which ``first`` stands at ``place``."""
    others = [number for number in range(count) if number != first]
    order = [*others[: place - 1], first, *others[place - 1 :]][: min(asked, count)]
    return f"<ranking>{','.join(map(str, order))}</ranking>"
