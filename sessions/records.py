"""A question about a long chat history, as every stage of the sifter sees it, and the rows that hold it.

Rows are those of ``{data_dir}/{dataset}/{split}.parquet`` and of every stage's output, one per question. Columns as
MemSifter names them: ``question``, ``answer``, ``haystack_sessions`` (JSON: a list of sessions, each a list of
``{role, content}``), ``haystack_session_ids``, ``haystack_dates``, ``answer_session_ids``, ``question_id``,
``question_type``, ``question_date``, ``all_options``, and ``language`` and ``answers`` of this pack. Others travel
along. ``answer`` is a text, a number, or what ``gold_answer`` says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from ..system.errors import MemAgentError

_READ = frozenset({
    "question", "answer", "answers", "haystack_sessions", "haystack_session_ids", "haystack_dates",
    "answer_session_ids", "question_id", "question_type", "question_date", "all_options", "language",
})
_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")


class BadRow(MemAgentError, ValueError):
    """A row that is no question about a history; the message names the row, the column and the remedy."""


class Language(StrEnum):
    EN = "en"
    ZH = "zh"


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    """Who speaks: ``user``, ``assistant``, or any other name."""
    content: str


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    turns: tuple[Turn, ...]
    date: str = ""
    """As the data writes it, ``2023/05/20 (Sat) 02:11``; empty where it says none."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """One row of a data set. Session ids differ, every gold is one of them; sessions stand in the order of time."""

    id: str
    question: str
    answers: tuple[str, ...]
    """Accepted answers, first one first."""
    sessions: tuple[Session, ...]
    gold: tuple[str, ...] = ()
    """Ids of the sessions that hold the answer; empty where the data names none."""
    date: str = ""
    """When the question was asked."""
    kind: str = ""
    language: Language = Language.EN
    options: tuple[str, ...] = ()
    """Of a multiple-choice question, as the data writes them, ``(a) ...``."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Columns that no stage reads; they travel along."""

    @property
    def gold_positions(self) -> tuple[int, ...]:
        """Where the gold sessions stand in ``sessions``, ascending."""
        gold = set(self.gold)
        return tuple(position for position, session in enumerate(self.sessions) if session.id in gold)


def language_of(text: str) -> Language:
    """Chinese where at least a third of the letters are; names of other scripts do not change that."""
    letters = len(_LETTER.findall(text))
    return Language.ZH if letters and 3 * len(_CJK.findall(text)) >= letters else Language.EN


# --- rows -----------------------------------------------------------------------------------------------------------


def row_of(asked: HistoryQuestion) -> dict[str, Any]:
    """The row of a question; ``question_of`` reads it again."""
    talks = [[{"role": turn.role, "content": turn.content} for turn in session.turns] for session in asked.sessions]
    return {
        **asked.own, "question_id": asked.id, "question": asked.question,
        "answer": asked.answers[0] if asked.answers else "", "answers": list(asked.answers),
        "haystack_sessions": orjson.dumps(talks).decode(),
        "haystack_session_ids": [s.id for s in asked.sessions], "haystack_dates": [s.date for s in asked.sessions],
        "answer_session_ids": list(asked.gold), "question_type": asked.kind, "question_date": asked.date,
        "all_options": list(asked.options), "language": asked.language.value,
    }


def question_of(row: Mapping[str, Any], where: str, number: int = 0) -> HistoryQuestion:
    """The question of a row, ``where`` naming its file. Raises BadRow."""
    name = _text(row.get("question_id")) or str(number)
    try:
        return question_in({**row, "question_id": name})
    except ValueError as error:
        raise BadRow(f"{where}: row {number} ({name}): {error}") from None


def question_in(row: Mapping[str, Any]) -> HistoryQuestion:
    """The question of a row that has an id. Raises ValueError, which says what is wrong."""
    texts = {name: _text(row.get(name)) for name in ("question_id", "question_date", "question_type", "language")}
    question = _text(row.get("question")).strip()
    if not question:
        raise ValueError("no question; expected a text in the column question")
    talks = _talks(row.get("haystack_sessions"))
    ids = _texts(row.get("haystack_session_ids")) or [f"session_{number}" for number in range(len(talks))]
    dates = _texts(row.get("haystack_dates")) or [""] * len(talks)
    for column, values in (("haystack_session_ids", ids), ("haystack_dates", dates)):
        if len(values) != len(talks):
            raise ValueError(f"{len(values)} {column} for {len(talks)} sessions")
    if len(set(ids)) != len(ids):
        raise ValueError("haystack_session_ids names a session twice; give each its own id")
    gold = tuple(dict.fromkeys(_texts(row.get("answer_session_ids"))))
    if strange := set(gold) - set(ids):
        raise ValueError(f"answer_session_ids names {min(strange)!r}, which is no session of the history")
    return HistoryQuestion(
        texts["question_id"], question, answers_of(row),
        tuple(map(Session, ids, talks, dates)), gold, texts["question_date"], texts["question_type"],
        Language(texts["language"]) if texts["language"] in tuple(Language) else language_of(question),
        tuple(_texts(row.get("all_options"))),
        {column: value for column, value in row.items() if column not in _READ},
    )


def answers_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Of the column ``answers``, else of ``answer``, which may be a number, else of ``gold_answer``."""
    names = ("answers", "answer", "gold_answer")
    columns = ([text for text in _texts(row.get(name)) if text.strip()] for name in names)
    return tuple(dict.fromkeys(next(filter(None, columns), ())))


def _talks(value: Any) -> list[tuple[Turn, ...]]:
    try:
        talks = orjson.loads(value) if isinstance(value, str | bytes) else value
        return [tuple(Turn(str(turn["role"]), _text(turn["content"])) for turn in talk) for talk in talks]
    except (ValueError, TypeError, KeyError):
        raise ValueError("haystack_sessions is no JSON list of sessions, each a list of {role, content}") from None


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(value: Any) -> list[str]:
    """Of a list, or of a value that stands alone."""
    if value is None or value == "":
        return []
    return [_text(one) for one in (value if isinstance(value, list) else [value])]
