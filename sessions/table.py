"""Rows of ``{data_dir}/{dataset}/{split}.parquet`` and of every stage's output, one per question.

Columns as MemSifter names them: ``question``, ``answer``, ``haystack_sessions`` (JSON: a list of sessions, each a list
of ``{role, content}``), ``haystack_session_ids``, ``haystack_dates``, ``answer_session_ids``, ``question_id``,
``question_type``, ``question_date``, ``all_options``, and ``language`` and ``answers`` of this pack. Others travel
along. ``answer`` is a text, a number, or what ``gold_answer`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from ..system.errors import MemAgentError
from .records import HistoryQuestion, Language, Session, Turn
from .wording import language_of

_READ = frozenset({
    "question", "answer", "answers", "haystack_sessions", "haystack_session_ids", "haystack_dates",
    "answer_session_ids", "question_id", "question_type", "question_date", "all_options", "language",
})


class BadRow(MemAgentError, ValueError):
    """A row that is no question about a history; the message names the row, the column and the remedy."""


def row_of(asked: HistoryQuestion, history: str | None = None) -> dict[str, Any]:
    """The row of a question; ``question_of`` reads it again. ``history``: its ``history_text``, if known."""
    return {
        **asked.own, "question_id": asked.id, "question": asked.question,
        "answer": asked.answers[0] if asked.answers else "", "answers": list(asked.answers),
        "haystack_sessions": history_text(asked.sessions) if history is None else history,
        "haystack_session_ids": [s.id for s in asked.sessions], "haystack_dates": [s.date for s in asked.sessions],
        "answer_session_ids": list(asked.gold), "question_type": asked.kind, "question_date": asked.date,
        "all_options": list(asked.options), "language": asked.language.value,
    }


def history_text(sessions: Iterable[Session]) -> str:
    """The column ``haystack_sessions``."""
    talks = [[{"role": turn.role, "content": turn.content} for turn in session.turns] for session in sessions]
    return orjson.dumps(talks).decode()


def question_of(row: Mapping[str, Any], where: str, number: int = 0) -> HistoryQuestion:
    """The question of a row, ``where`` naming its file. Raises BadRow."""
    name = _text(row, "question_id") or str(number)
    try:
        return question_in({**row, "question_id": name})
    except ValueError as error:
        raise BadRow(f"{where}: row {number} ({name}): {error}") from None


def question_in(row: Mapping[str, Any]) -> HistoryQuestion:
    """The question of a row that has an id. Raises ValueError, which says what is wrong."""
    question = _text(row, "question").strip()
    if not question:
        raise ValueError("no question; expected a text in the column question")
    talks = _talks(row.get("haystack_sessions"))
    ids = [str(value) for value in _listed(row, "haystack_session_ids")] or [f"session_{n}" for n in range(len(talks))]
    dates = [_shown(value) for value in _listed(row, "haystack_dates")] or [""] * len(talks)
    for column, values in (("haystack_session_ids", ids), ("haystack_dates", dates)):
        if len(values) != len(talks):
            raise ValueError(f"{len(values)} {column} for {len(talks)} sessions")
    if len(set(ids)) != len(ids):
        raise ValueError("haystack_session_ids names a session twice; give each its own id")
    gold = tuple(dict.fromkeys(str(value) for value in _listed(row, "answer_session_ids")))
    if strange := set(gold) - set(ids):
        raise ValueError(f"answer_session_ids names {min(strange)!r}, which is no session of the history")
    sessions = tuple(Session(i, turns, date) for i, turns, date in zip(ids, talks, dates, strict=True))
    language = _text(row, "language")
    return HistoryQuestion(
        _text(row, "question_id"), question, _answers(row), sessions, gold, _text(row, "question_date"),
        _text(row, "question_type"),
        Language(language) if language in tuple(Language) else language_of(question),
        tuple(str(option) for option in _listed(row, "all_options")),
        {column: value for column, value in row.items() if column not in _READ},
    )


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    several = [str(value) for value in _listed(row, "answers") if str(value).strip()]
    one = _given(row, "answer")
    one = _given(row, "gold_answer") if one is None or not str(one).strip() else one
    return tuple(dict.fromkeys(several)) or ((str(one),) if one is not None and str(one).strip() else ())


def _talks(value: Any) -> list[tuple[Turn, ...]]:
    try:
        talks = orjson.loads(value) if isinstance(value, str | bytes) else value
        return [tuple(_turn(turn) for turn in talk) for talk in talks]
    except (ValueError, TypeError, KeyError):
        raise ValueError("haystack_sessions is no JSON list of sessions, each a list of {role, content}") from None


def _turn(turn: Mapping[str, Any]) -> Turn:
    return Turn(str(turn["role"]), str(turn["content"] if turn["content"] is not None else ""))


def _given(row: Mapping[str, Any], column: str) -> Any:
    value = row.get(column)
    return None if isinstance(value, float) and value != value else value  # pandas' NaN stands for nothing


def _text(row: Mapping[str, Any], column: str) -> str:
    return _shown(_given(row, column))


def _shown(value: Any) -> str:
    return "" if value is None else str(value)  # an array, as pandas reads lists, has no truth


def _listed(row: Mapping[str, Any], column: str) -> Sequence[Any]:
    value = _given(row, column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return []
    alone = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    return [value] if alone else list(value)
