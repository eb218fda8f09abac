"""A question about a long chat history, as every stage of the sifter sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
    """One row of a data set.

    Invariant: session ids differ, and every gold is one of them. Sessions stand in the order of time.
    """

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

    def __post_init__(self) -> None:
        ids = [session.id for session in self.sessions]
        assert len(set(ids)) == len(ids), f"question {self.id}: two sessions share an id"
        assert set(self.gold) <= set(ids), f"question {self.id}: a gold session is not in the history"

    @property
    def gold_positions(self) -> tuple[int, ...]:
        """Where the gold sessions stand in ``sessions``, ascending."""
        gold = set(self.gold)
        return tuple(position for position, session in enumerate(self.sessions) if session.id in gold)
