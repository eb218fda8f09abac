"""Rows that have the columns of ``sessions.table`` already, in any file: parquet, JSON, JSON lines or CSV.

Sets in other languages come this way: a Chinese one (PerLTQA, say) needs nothing but ``question``, ``answer`` and
``haystack_sessions``. What else a row has travels along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..sessions.records import HistoryQuestion, question_in
from .asked import Asked, BadQuestion, text_of, unreadable
from .sources import open_file


def read_rows(paths: Sequence[Path]) -> Iterator[Asked]:
    for path in paths:
        for number, row in enumerate(open_file(path).rows):
            if row.fields is None:
                yield unreadable(f"{path.name}: {row.where}", row.problem)
                continue
            id = text_of(row.fields, "question_id") or f"{path.stem}_{number}"
            history = blake2b(str(row.fields.get("haystack_sessions")).encode(), digest_size=16)
            build = partial(_question, {**row.fields, "question_id": id})
            yield Asked(f"{path.name}: {row.where} ({id})", id, history.hexdigest(), build)


def _question(row: Mapping[str, Any]) -> HistoryQuestion:
    try:
        asked = question_in(row)
    except ValueError as error:
        raise BadQuestion(str(error)) from None
    if not asked.sessions:
        raise BadQuestion("no sessions")
    return asked
