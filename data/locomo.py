"""LoCoMo's conversations (Maharana et al. 2024, ``locomo10.json``) as questions about histories.

An entry is a conversation of two people over many sessions, and questions about it::

    {"sample_id": "conv-26", "conversation": {"speaker_a": "Caroline", "speaker_b": "Melanie",
       "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "Caroline", "dia_id": "D1:3",
       "text": ..., "blip_caption": "a photo of ..."}, ...], "session_2_date_time": ..., ...},
     "qa": [{"question": ..., "answer": 2022, "evidence": ["D1:3", "D2:4"], "category": 2}, ...]}

What becomes of it:

- a speaker's name is the role of a turn, so texts, tags and embeddings name who speaks;
- a picture is its caption, ``[photo: a photo of ...]``, behind the text that came with it;
- sessions are ``session_1`` ... in the order of their numbers; a date without a session is no session;
- evidence names turns, ``D8:6`` the sixth of session 8; its session is gold. Several in one text ("D8:6; D9:17") and
  broken ones ("D:11:26", "D30:05") are read; one whose session is not there is dropped. A question without any has no
  gold: its answer is measured, its ranking is not;
- numbers are texts; of category 3, open-domain, what stands before ";" is an accepted answer as well, as published;
- category 5, adversarial, asks what the conversation does not say. There is no answer and no gold session, and its
  evidence leads to the wrong one, so it is left out, as MemSifter's 1,536 of 1,986 questions tell it was there;
  ``adversarial=True`` keeps it with the answers that LoCoMo's evaluation looks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..sessions.records import HistoryQuestion, Session, Turn, language_of
from .histories import BadQuestion, Entry, Fields, Skipped, entry, needed, text_of
from .rows import DataError

KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
NOT_MENTIONED = ("Not mentioned in the conversation", "No information available")
_OPEN_DOMAIN, _ADVERSARIAL = 3, 5
_SESSION = re.compile(r"session_(0|[1-9][0-9]*)")
_TURN = re.compile(r"D:?(\d+):\s*\d+", re.I)


def read_locomo(path: Path, number: int, place: str, fields: Fields, *, adversarial: bool = False) -> Iterator[Entry]:
    name = text_of(fields, "sample_id") or place.replace(" ", "_")
    asked, conversation = fields.get("qa"), fields.get("conversation")
    if not isinstance(asked, list) or not isinstance(conversation, dict):
        raise DataError(f"{path}: {place}: no `conversation` and `qa`; expected LoCoMo's format")
    sessions = cache(partial(_sessions, conversation))
    for n, each in enumerate(asked):
        id = f"{name}_{n}"
        build = partial(_question, id, each, name, sessions, adversarial)
        yield entry(f"{path.name}: {name}, question {n}", id, name, build)


def _question(
    id: str, asked: Any, name: str, sessions: Callable[[], tuple[Session, ...]], adversarial: bool
) -> HistoryQuestion:
    if not isinstance(asked, dict):
        raise BadQuestion("no question, but a " + type(asked).__name__)
    category = asked.get("category")
    if not isinstance(category, int) or category not in KINDS:
        raise BadQuestion(f"category {category!r:.20}; expected 1 to 5")
    refused = category == _ADVERSARIAL
    if refused and not adversarial:
        raise Skipped("adversarial, without an answer")
    question = needed(asked, "question")
    answers = NOT_MENTIONED if refused else (needed(asked, "answer"),)
    if category == _OPEN_DOMAIN:
        answers = tuple(dict.fromkeys(filter(None, (answers[0].split(";")[0].strip(), *answers))))
    history = sessions()
    evidence = _texts(asked.get("evidence"))
    named = {f"session_{int(number)}" for text in evidence for number in _TURN.findall(text)}
    gold = () if refused else tuple(session.id for session in history if session.id in named)
    return HistoryQuestion(
        id, question, answers, history, gold, kind=KINDS[category], language=language_of(question),
        own={"sample_id": name, "category": category, "evidence": evidence},
    )


def _sessions(conversation: Mapping[str, Any]) -> tuple[Session, ...]:
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    found = []
    for number in numbers:
        turns = conversation[f"session_{number}"]
        if isinstance(turns, list) and turns:
            date = text_of(conversation, f"session_{number}_date_time")
            found.append(Session(f"session_{number}", tuple(map(_turn, turns)), date))
    if not found:
        raise BadQuestion("its conversation has no sessions")
    return tuple(found)


def _turn(turn: Any) -> Turn:
    if not isinstance(turn, dict):
        raise BadQuestion("a turn of its conversation is no object")
    caption = text_of(turn, "blip_caption")
    parts = [text_of(turn, "text"), f"[photo: {caption}]" if caption else ""]
    return Turn(needed(turn, "speaker"), " ".join(filter(None, parts)))


def _texts(value: Any) -> list[str]:
    return [str(each) for each in (value if isinstance(value, list) else [value]) if each is not None]
