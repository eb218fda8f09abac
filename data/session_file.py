"""Writes ``{data_dir}/{dataset}/{split}.parquet``: rows of ``sessions.table``, a few in memory at a time.

The columns that no stage reads are those of the first rows, each of the kind that its first value there has: texts,
whole numbers, numbers, truth values or lists of texts; anything else becomes JSON. There are 256 of them at most, as
every row has a place in each. What rows have beyond that is left out and counted, so that one type holds for the file.

A row group has 64 rows or 32 MB of histories, whichever is less, so a reader needs no more memory than that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ..sessions.records import HistoryQuestion, Session
from ..sessions.table import history_text, row_of
from ..system.errors import MemAgentError

_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_COLUMNS = {
    "question_id": _TEXT, "question": _TEXT, "answer": _TEXT, "answers": _TEXTS,
    "haystack_sessions": pa.large_string(), "haystack_session_ids": _TEXTS, "haystack_dates": _TEXTS,
    "answer_session_ids": _TEXTS, "question_type": _TEXT, "question_date": _TEXT, "all_options": _TEXTS,
    "language": _TEXT,
}
_ROWS, _CHARACTERS = 64, 32 << 20
_OWN = 256
_PAGE_ROWS = 4
"""Rows that are encoded together: a page is unpacked whole, and a history has millions of characters."""


class SessionFile:
    """Rows for one file, which the caller opens and puts in its place."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[dict[str, Any]] = []
        self._characters = 0
        self._last: tuple[tuple[Session, ...], str] = (), history_text(())
        """The history of the last question and its text: questions that share one stand side by side."""
        self.count = 0
        self.left_out: Counter[str] = Counter()
        """Values by column that the file's columns have no place for."""

    def add(self, asked: HistoryQuestion) -> None:
        if asked.sessions is not self._last[0]:
            self._last = asked.sessions, history_text(asked.sessions)
        row = row_of(asked, self._last[1])
        self._rows.append(row)
        self._characters += len(row["haystack_sessions"])
        self.count += 1
        if len(self._rows) >= _ROWS or self._characters >= _CHARACTERS:
            self._write()

    def close(self) -> None:
        """Writes what is left; a file without rows has the columns all the same."""
        self._write()
        self.abandon()

    def abandon(self) -> None:
        """Lets go of the file while it can still be written; nothing where ``close`` has been before."""
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        if self._writer is None:
            schema = pa.schema(_own_columns(self._rows) | _COLUMNS)
            self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_batch_size=_PAGE_ROWS)
        schema = self._writer.schema
        columns = {
            field.name: [self._fitted(row, field.name, field.type) for row in self._rows] for field in schema
        }
        for row in self._rows:
            self.left_out.update(name for name, value in row.items() if name not in columns and value is not None)
        if self._rows:
            self._writer.write_table(pa.table(columns, schema))
        self._rows, self._characters = [], 0

    def _fitted(self, row: Mapping[str, Any], name: str, kind: pa.DataType) -> Any:
        value = row.get(name)
        if name in _COLUMNS or value is None:
            return value
        if kind == _TEXT:
            return value if isinstance(value, str) else _json(value, name)
        if _kind_of(value) == kind:
            return list(value) if kind == _TEXTS else value
        if kind == pa.float64() and _kind_of(value) == pa.int64():
            return float(value)
        self.left_out[name] += 1
        return None


def _own_columns(rows: list[dict[str, Any]]) -> dict[str, pa.DataType]:
    found: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            if name not in _COLUMNS and value is not None and len(found) < _OWN:
                found.setdefault(name, _kind_of(value))
    return found


def _kind_of(value: Any) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return _TEXTS
    return _TEXT


def _json(value: Any, name: str) -> str:
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError as error:
        reason = " ".join(str(error).split())[:120]
        raise MemAgentError(f"column {name}: {reason}; leave it out of the input") from None
