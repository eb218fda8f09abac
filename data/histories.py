"""What the readers of chat histories share: entries of raw files, and rows that have the sifter's columns already.

A reader yields an ``Entry`` for each question of a row: the question, or why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from ..sessions.records import HistoryQuestion, question_in
from .rows import open_file

Fields = Mapping[str, Any]


class BadQuestion(ValueError):
    """A raw entry that is no question about a history, and why: one line without the entry's own texts."""


class Skipped(Exception):
    """A question that the converter leaves out on purpose, and why; counted by that text, and no error."""


@dataclass(frozen=True, slots=True)
class Entry:
    where: str
    """In the input, for messages."""
    id: str
    history: str
    """Questions with the same text here are about one history."""
    question: HistoryQuestion | BadQuestion | Skipped


Reader = Callable[[Path, int, str, Fields], Iterator[Entry]]
"""Of a file, a row's number from 0, its place (``row 1``) and its fields."""


def read_entries(paths: Sequence[Path], reader: Reader) -> Iterator[Entry]:
    for path in paths:
        for number, row in enumerate(open_file(path).rows):
            if row.fields is not None:
                yield from reader(path, number, row.where, row.fields)
            else:
                where = f"{path.name}: {row.where}"
                yield Entry(where, where, where, BadQuestion(row.problem))


def entry(where: str, id: str, history: str, build: Callable[[], HistoryQuestion]) -> Entry:
    """With what ``build`` returns or, of these two errors, raises."""
    try:
        return Entry(where, id, history, build())
    except (BadQuestion, Skipped) as reason:
        return Entry(where, id, history, reason)


def read_rows(path: Path, number: int, place: str, fields: Fields) -> Iterator[Entry]:
    """A row in the columns of ``sessions.records``. Sets in other languages come this way: a Chinese one (PerLTQA)
    needs nothing but ``question``, ``answer`` and ``haystack_sessions``. What else a row has travels along.
    """
    id = text_of(fields, "question_id") or f"{path.stem}_{number}"
    history = blake2b(str(fields.get("haystack_sessions")).encode(), digest_size=16).hexdigest()
    yield entry(f"{path.name}: {place} ({id})", id, history, partial(_question, {**fields, "question_id": id}))


def _question(fields: Fields) -> HistoryQuestion:
    try:
        asked = question_in(fields)
    except ValueError as error:
        raise BadQuestion(str(error)) from None
    if not asked.sessions:
        raise BadQuestion("no sessions")
    return asked


def text_of(fields: Fields, *names: str) -> str:
    """The text, or number, of the first of these fields that holds one, without blanks around; "" where none does."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value == value:
            if text := str(value).strip():
                return text
    return ""


def needed(fields: Fields, *names: str) -> str:
    """The same. Raises BadQuestion where there is none."""
    if text := text_of(fields, *names):
        return text
    raise BadQuestion(f"no {' or '.join(names)}")
