"""Writes ``{data_dir}/{dataset}/{split}.parquet``: rows of ``sessions.table``, a few in memory at a time.

Columns that no stage reads travel along; those of the first rows decide which there are, and of which type.
A row group has 64 rows or 32 MB of histories, whichever is less, so a reader needs no more memory than that.
"""

from __future__ import annotations

from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ..sessions.records import HistoryQuestion, Session, history_text, row_of
from ..system.errors import MemAgentError, reason_of

_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_COLUMNS = {
    "question_id": _TEXT, "question": _TEXT, "answer": _TEXT, "answers": _TEXTS,
    "haystack_sessions": pa.large_string(), "haystack_session_ids": _TEXTS, "haystack_dates": _TEXTS,
    "answer_session_ids": _TEXTS, "question_type": _TEXT, "question_date": _TEXT, "all_options": _TEXTS,
    "language": _TEXT,
}
_ROWS, _CHARACTERS = 64, 32 << 20
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

    def add(self, asked: HistoryQuestion) -> None:
        if asked.sessions is not self._last[0]:
            self._last = asked.sessions, history_text(asked.sessions)
        self._rows.append(row_of(asked, self._last[1]))
        self._characters += len(self._last[1])
        self.count += 1
        if len(self._rows) >= _ROWS or self._characters >= _CHARACTERS:
            self._write()

    def close(self) -> None:
        """Writes what is left; a file without rows has the columns all the same."""
        if self._rows or self._writer is None:
            self._write()
        self.abandon()

    def abandon(self) -> None:
        """Lets go of the file while it can still be written."""
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        try:
            if self._writer is None:
                schema = pa.schema(_own_columns(self._rows) | _COLUMNS)
                self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_batch_size=_PAGE_ROWS)
            self._writer.write_table(pa.Table.from_pylist(self._rows, self._writer.schema))
        except pa.ArrowException as error:
            raise MemAgentError(f"a column has values of several types ({reason_of(error)}); make them one, or remove "
                                "the column from the input") from None
        self._rows, self._characters = [], 0


def _own_columns(rows: list[dict[str, Any]]) -> dict[str, pa.DataType]:
    names = dict.fromkeys(name for row in rows for name in row if name not in _COLUMNS)
    types = {name: pa.infer_type([row.get(name) for row in rows]) for name in names}
    return {name: _TEXT if pa.types.is_null(kind) else _TEXTS if kind == pa.list_(pa.null()) else kind
            for name, kind in types.items()}
