"""A row of ``rank_sessions`` as its reward needs it, and the stored history that it names.

The history's document, in the store beside the training file, is JSON of the sessions that the row's prompt shows, in
its order::

    {"sessions": [[{"role": "user", "content": "I moved to Lyon."}], ...], "ids": ["s7", ...], "dates": ["", ...]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ..sessions.records import Language, Session, Turn
from ..sessions.table import BadRow
from .option_choice import MOST_OPTIONS


@dataclass(frozen=True, slots=True)
class RankedRow:
    question: str
    date: str
    language: Language
    answers: tuple[str, ...]
    shown: int
    session_tokens: tuple[int, ...]
    """Of each session as it is rendered, [shown]."""
    history_id: str
    options: tuple[str, ...] = ()
    """Of a multiple-choice question; they stand below it where the chat model is asked."""


def read_row(metadata: Mapping[str, Any]) -> RankedRow:
    """Raises BadRow."""
    name = f"row {metadata.get('id', '?')!r:.40}"
    try:
        row = RankedRow(
            str(metadata["question"]), str(metadata.get("question_date") or ""),
            Language(metadata.get("language") or Language.EN), _texts(metadata["answers"]),
            int(metadata["shown"]), tuple(int(n) for n in metadata["session_tokens"]), str(metadata["history_id"]),
            _texts(metadata.get("options") or ()),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRow(f"{name} is no row of rank_sessions: {type(error).__name__} {error}") from None
    if not row.question.strip() or not any(answer.strip() for answer in row.answers):
        raise BadRow(f"{name} has no question, or no accepted answer")
    if len(row.options) > MOST_OPTIONS:
        raise BadRow(f"{name} has {len(row.options)} options, more than the {MOST_OPTIONS} that there are letters for")
    if not 0 < row.shown == len(row.session_tokens):
        raise BadRow(f"{name} shows {row.shown} sessions and has the tokens of {len(row.session_tokens)}")
    return row


def _texts(values: Any) -> tuple[str, ...]:
    """Raises TypeError where it is no list: a text would be taken for its letters."""
    if not isinstance(values, list | tuple) or None in values:
        raise TypeError(f"expected a list of texts, not {values!r:.40}")
    return tuple(map(str, values))


def read_history(document: str, shown: int) -> tuple[Session, ...]:
    """The sessions of a stored history. Raises BadRow where they are not ``shown``."""
    try:
        stored = orjson.loads(document)
        sessions = tuple(
            Session(str(name), tuple(Turn(str(turn["role"]), str(turn["content"] or "")) for turn in talk),
                    str(date or ""))
            for name, talk, date in zip(stored["ids"], stored["sessions"], stored["dates"], strict=True)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRow(f"a stored history is no JSON of sessions, ids and dates: {error}") from None
    if len(sessions) != shown:
        raise BadRow(f"a stored history has {len(sessions)} sessions, its row shows {shown}")
    return sessions
