"""LongMemEval (Wu et al. 2025; ``longmemeval_s``, ``_m``, ``_oracle``) as questions about histories.

Its entries have the columns of ``sessions.records`` but for two things::

    {"question_id": "e47becba", "question_type": "multi-session", "question": ..., "answer": "4" or 4,
     "question_date": "2023/05/30 (Tue) 23:40", "haystack_dates": [...], "haystack_session_ids": [...],
     "haystack_sessions": [[{"role": "user", "content": ..., "has_answer": true}, ...], ...],
     "answer_session_ids": ["answer_280352e9_1", ...]}

- ``_abs`` at the end of a question's id: an abstention question, which asks for what never happened. Its evidence
  sessions do not hold an answer, and LongMemEval's own retrieval scores skip it: its kind is ``abstention`` and it has
  no gold; the ids stay in the column ``evidence_session_ids``;
- the oracle's sessions are in no order of time: sessions are sorted by their dates, where all have one.

Turns that hold the evidence stand in ``evidence_turns`` as ``<session id>:<turn from 0>``. A session id that a history
has twice is told apart by ``#2``, and both are gold if one is.

The published split (MemSifter): entries in the file's order, shuffled with seed 42, the first 70% train; the ids of
``_s`` decide for ``_m`` as well (``--split-order``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..sessions.records import HistoryQuestion, Session, Turn, language_of
from .histories import BadQuestion, Entry, Fields, entry, needed, text_of

_DATE = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})\D*(?:(\d{1,2}):(\d{2}))?")


def read_longmemeval(path: Path, number: int, place: str, fields: Fields) -> Iterator[Entry]:
    id = text_of(fields, "question_id") or place.replace(" ", "_")
    yield entry(f"{path.name}: {place} ({id})", id, id, partial(_question, id, fields))


def _question(id: str, fields: Fields) -> HistoryQuestion:
    talks, ids, dates = (_list(fields, f"haystack_{what}") for what in ("sessions", "session_ids", "dates"))
    dates = [str(date or "").strip() for date in dates] or [""] * len(talks)
    if not talks or len({len(talks), len(ids), len(dates)}) > 1:
        raise BadQuestion(f"{len(talks)} sessions, {len(ids)} of their ids and {len(dates)} of their dates")
    ids = list(map(str, ids))
    names = _unique(ids)
    evidence = {str(each) for each in _list(fields, "answer_session_ids")}
    if missing := evidence - set(ids):
        raise BadQuestion(f"answer_session_ids names {min(missing)!r}, which is no session of the history")
    question = needed(fields, "question")
    if not all(isinstance(talk, list) for talk in talks):
        raise BadQuestion("a session is no list of turns")
    order = _in_time(dates)
    sessions = tuple(Session(names[n], tuple(map(_turn, talks[n])), dates[n]) for n in order)
    gold = tuple(names[n] for n in order if ids[n] in evidence)
    turns = [f"{names[n]}:{t}" for n in order for t, turn in enumerate(talks[n]) if turn.get("has_answer") is True]
    abstains = id.endswith("_abs")
    return HistoryQuestion(
        id, question, (needed(fields, "answer"),), sessions, () if abstains else gold,
        text_of(fields, "question_date"), "abstention" if abstains else text_of(fields, "question_type"),
        language_of(question), own={"evidence_session_ids": list(gold), "evidence_turns": turns},
    )


def _in_time(dates: Sequence[str]) -> list[int]:
    """The places of sessions from the oldest to the newest; as they are where a date cannot be read."""
    found = [_DATE.search(date) for date in dates]
    if not all(found):
        return list(range(len(dates)))
    moments = [tuple(int(part or 0) for part in match.groups()) for match in found if match]
    return sorted(range(len(dates)), key=lambda n: (moments[n], n))


def _unique(ids: Sequence[str]) -> list[str]:
    """The ids, where one repeats with its count behind it: a a b -> a a#2 b; a count that is an id is not taken."""
    found: list[str] = []
    for id in ids:
        fresh, count = id, 1
        while fresh in found or (count > 1 and fresh in ids):
            count += 1
            fresh = f"{id}#{count}"
        found.append(fresh)
    return found


def _list(fields: Fields, name: str) -> list[Any]:
    value = fields.get(name)
    if value is not None and not isinstance(value, list):
        raise BadQuestion(f"{name} is no list")
    return value or []


def _turn(turn: Any) -> Turn:
    if not isinstance(turn, dict) or not isinstance(turn.get("content"), str):
        raise BadQuestion("a turn has no role and content")
    return Turn(needed(turn, "role"), turn["content"])
