"""Raw files of chat histories as questions about them: LoCoMo, LongMemEval, PersonaMem, and rows of the sifter's own.

LoCoMo (Maharana et al. 2024, ``locomo10.json``). An entry is a conversation of two people over many sessions, and
questions about it::

    {"sample_id": "conv-26", "conversation": {"speaker_a": "Caroline", "speaker_b": "Melanie",
       "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "Caroline", "dia_id": "D1:3",
       "text": ..., "blip_caption": "a photo of ..."}, ...], "session_2_date_time": ..., ...},
     "qa": [{"question": ..., "answer": 2022, "evidence": ["D1:3", "D2:4"], "category": 2}, ...]}

- a speaker's name is the role of a turn, so texts, tags and embeddings name who speaks;
- a picture is its caption, ``[photo: a photo of ...]``, behind the text that came with it;
- sessions are ``session_1`` ... in the order of their numbers; a date without a session is no session;
- evidence names turns, ``D8:6`` the sixth of session 8; its session is gold. Several in one text ("D8:6; D9:17") and
  broken ones ("D:11:26", "D30:05") are read; one whose session is not there is dropped. A question without any has no
  gold: its answer is measured, its ranking is not;
- numbers are texts; of category 3, open-domain, what stands before ";" is an accepted answer as well, as published;
- category 5, adversarial, asks what the conversation does not say, and its evidence leads to the wrong answer. It is
  skipped, as MemSifter's 1,536 of 1,986 questions tell it was there.

LongMemEval (Wu et al. 2025; ``longmemeval_s``, ``_m``, ``_oracle``). Entries have the columns of ``rewards.sessions``
but for two things::

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

PersonaMem (Jiang et al. 2025), multiple choice. Version 1: ``questions_32k.csv`` (128k, 1M) and
``shared_contexts_32k.jsonl``, whose lines are ``{id: [messages]}``. A question is asked behind the first
``end_index_in_shared_context`` messages of the context ``shared_context_id``; the rest is the future. Each session
begins with a system message, the persona's description, which says the same every time and is kept in the first
session alone. ``correct_answer`` is "(c)", ``all_options`` a list of "(a) ...".

Version 2: ``benchmark.csv`` names a history file for each question, in ``chat_history_32k_link`` (128k), below the
folder of ``--contexts``. ``user_query`` is a message, ``correct_answer`` a text; with ``incorrect_answers`` it makes
options (a), (b) ... in an order that the question's id decides. Its histories do not say where sessions begin: they
are cut before a user's message once a session has 10 messages.

Accepted answers are the text of the right option and its letter "(c)". Gold sessions: version 2 quotes the messages
that tell (``related_conversation_snippet``), and gold are the sessions that hold one of them. Version 1 says how far
back they are, in blocks, tokens, and as a share of the context: the session there is gold, found by characters in
place of tokens, so by estimate; of neighbours at most 1.5% of the context off the one that the blocks name is taken.
How MemSifter found them is not published.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import orjson

from ..rewards.sessions import HistoryQuestion, Session, Turn, language_of, question_in
from ..system.errors import reason_of
from .rows import BadRow, DataError, open_file

Fields = Mapping[str, Any]
Messages = Sequence[Mapping[str, Any]]
Reader = Callable[[str, Fields], Iterator[tuple[str, Callable[[], HistoryQuestion]]]]
"""Of a name for a row without an id of its own and its fields: the id of each of its questions, and what builds it or
raises BadRow or Skipped."""


class Skipped(Exception):
    """A question that is left out on purpose, and why; counted by that text, and no error."""


def text_of(fields: Fields, *names: str) -> str:
    """The stripped text of the first field that has one, numbers as text; empty where none does."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str | int | float) and value == value and (text := str(value).strip()):
            return text
    return ""


def _needed(fields: Fields, *names: str) -> str:
    """The same. Raises BadRow where there is none."""
    if text := text_of(fields, *names):
        return text
    raise BadRow(f"no {' or '.join(names)}")


def _list(fields: Fields, name: str) -> list[Any]:
    value = fields.get(name) or []
    if not isinstance(value, list):
        raise BadRow(f"{name} is no list")
    return value


# --- the sifter's own columns ----------------------------------------------------------------------------------------
def read_rows(name: str, fields: Fields) -> Iterator[tuple[str, Callable[[], HistoryQuestion]]]:
    """A row in the columns of ``rewards.sessions``. Sets in other languages come this way: a Chinese one (PerLTQA)
    needs nothing but ``question``, ``answer`` and ``haystack_sessions``. What else a row has travels along.
    """
    id = text_of(fields, "question_id") or name
    yield id, partial(_own_question, {**fields, "question_id": id})


def _own_question(fields: Fields) -> HistoryQuestion:
    asked = question_in(fields)
    if not asked.sessions:
        raise BadRow("haystack_sessions has no sessions")
    return asked


# --- LoCoMo ----------------------------------------------------------------------------------------------------------
KINDS = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_OPEN_DOMAIN, _ADVERSARIAL = 3, 5
_SESSION = re.compile(r"session_(0|[1-9][0-9]*)")
_TURN = re.compile(r"D:?(\d+):\s*\d+", re.I)


def read_locomo(name: str, fields: Fields) -> Iterator[tuple[str, Callable[[], HistoryQuestion]]]:
    asked, conversation = fields.get("qa"), fields.get("conversation")
    if not isinstance(asked, list) or not isinstance(conversation, dict):
        raise BadRow("no `conversation` and `qa`; expected LoCoMo's format")
    name = text_of(fields, "sample_id") or name
    sessions = lru_cache(maxsize=1)(partial(_conversation, conversation))
    for number, each in enumerate(asked):
        yield f"{name}_{number}", partial(_locomo_question, f"{name}_{number}", each, name, sessions)


def _locomo_question(
    id: str, asked: Any, name: str, sessions: Callable[[], tuple[Session, ...]]
) -> HistoryQuestion:
    category = asked.get("category") if isinstance(asked, dict) else None
    if category not in KINDS:
        raise BadRow(f"category {category!r:.20}; expected 1 to 5")
    if category == _ADVERSARIAL:
        raise Skipped("adversarial, without an answer")
    question, answer = _needed(asked, "question"), _needed(asked, "answer")
    first = answer.split(";")[0].strip() if category == _OPEN_DOMAIN else answer
    given = asked.get("evidence")
    evidence = [str(each) for each in (given if isinstance(given, list) else [given]) if each is not None]
    named = {f"session_{int(number)}" for text in evidence for number in _TURN.findall(text)}
    return HistoryQuestion(
        id, question, tuple(dict.fromkeys(filter(None, (first, answer)))), sessions(),
        tuple(session.id for session in sessions() if session.id in named), kind=KINDS[category],
        language=language_of(question), own={"sample_id": name, "category": category, "evidence": evidence},
    )


def _conversation(conversation: Mapping[str, Any]) -> tuple[Session, ...]:
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    sessions = [(f"session_{number}", conversation[f"session_{number}"]) for number in numbers]
    found = tuple(Session(id, tuple(map(_said, turns)), text_of(conversation, f"{id}_date_time"))
                  for id, turns in sessions if turns)
    if not found:
        raise BadRow("its conversation has no sessions")
    return found


def _said(turn: Fields) -> Turn:
    caption = text_of(turn, "blip_caption")
    parts = [text_of(turn, "text"), f"[photo: {caption}]" if caption else ""]
    return Turn(_needed(turn, "speaker"), " ".join(filter(None, parts)))


# --- LongMemEval -----------------------------------------------------------------------------------------------------
_DATE = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})\D*(?:(\d{1,2}):(\d{2}))?")


def read_longmemeval(name: str, fields: Fields) -> Iterator[tuple[str, Callable[[], HistoryQuestion]]]:
    id = text_of(fields, "question_id") or name
    yield id, partial(_longmemeval_question, id, fields)


def _longmemeval_question(id: str, fields: Fields) -> HistoryQuestion:
    talks, ids, dates = (_list(fields, f"haystack_{what}") for what in ("sessions", "session_ids", "dates"))
    dates = [str(date or "").strip() for date in dates] or [""] * len(talks)
    if not talks or len({len(talks), len(ids), len(dates)}) > 1:
        raise BadRow(f"{len(talks)} sessions, {len(ids)} of their ids and {len(dates)} of their dates")
    ids = list(map(str, ids))
    names = _unique(ids)
    evidence = {str(each) for each in _list(fields, "answer_session_ids")}
    question, order = _needed(fields, "question"), _in_time(dates)
    sessions = tuple(Session(names[n], tuple(map(_turn, talks[n])), dates[n]) for n in order)
    gold = tuple(names[n] for n in order if ids[n] in evidence)
    turns = [f"{names[n]}:{t}" for n in order for t, turn in enumerate(talks[n]) if turn.get("has_answer") is True]
    abstains = id.endswith("_abs")
    return HistoryQuestion(
        id, question, (_needed(fields, "answer"),), sessions, () if abstains else gold,
        text_of(fields, "question_date"), "abstention" if abstains else text_of(fields, "question_type"),
        language_of(question), own={"evidence_session_ids": list(gold), "evidence_turns": turns},
    )


def _in_time(dates: Sequence[str]) -> list[int]:
    """The places of sessions from the oldest to the newest; as they are where a date cannot be read."""
    found = [_DATE.search(date) for date in dates]
    moments = [tuple(int(part or 0) for part in match.groups()) for match in found if match]
    return sorted(range(len(dates)), key=moments.__getitem__) if all(found) else list(range(len(dates)))


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


def _turn(turn: Any) -> Turn:
    if not isinstance(turn, dict) or not isinstance(turn.get("content"), str):
        raise BadRow("a turn has no role and content")
    return Turn(_needed(turn, "role"), turn["content"])


# --- PersonaMem ------------------------------------------------------------------------------------------------------
SESSION_TURNS = 10
_NEAR = 0.015
_DISTANCES = ("distance_to_ref_in_tokens", "context_length_in_tokens", "distance_to_ref_in_blocks")


def personamem_reader(contexts: Path | None, size: str) -> Reader:
    """``contexts`` is the JSONL file of version 1, or the folder that the links of version 2 start from."""
    if contexts is None or not contexts.exists():
        raise DataError(f"--contexts {contexts}: name PersonaMem's shared_contexts file, or its folder of histories")
    shared = contexts.is_file()
    names = ("shared_context_id",) if shared else (f"chat_history_{size}_link", "chat_history_link")
    question = _shared_question if shared else _linked_question
    # All of the file, some 100 MB at most.
    texts = {id: messages for row in open_file(contexts) for id, messages in row.fields.items()} if shared else {}
    history = lru_cache(maxsize=2)(partial(_shared, texts) if shared else partial(_linked, contexts))

    def read(name: str, fields: Fields) -> Iterator[tuple[str, Callable[[], HistoryQuestion]]]:
        stem, _, number = name.rpartition("_")
        id = text_of(fields, "question_id") or f"{stem if shared else text_of(fields, 'persona_id')}_{number}"
        yield id, lambda: question(id, fields, history(_needed(fields, *names)))

    return read


def _shared(contexts: Mapping[str, Any], id: str) -> Messages:
    if id not in contexts:
        raise BadRow(f"its context {id!r} is not in --contexts")
    return _messages(contexts[id])


def _linked(folder: Path, link: str) -> Messages:
    try:
        found = orjson.loads((folder / link).read_bytes())
    except (OSError, ValueError) as error:
        raise BadRow(f"its history {link!r} in {folder} cannot be read ({reason_of(error)})") from None
    if isinstance(found, dict):
        found = next((found[key] for key in ("chat_history", "conversations") if key in found), found)
    return _messages(found)


def _messages(found: Any) -> Messages:
    with suppress(TypeError, KeyError):
        if found and all(isinstance(message[key], str) for message in found for key in ("role", "content")):
            return found
    raise BadRow("its history is no list of messages with role and content")


def _shared_question(id: str, fields: Fields, messages: Messages) -> HistoryQuestion:
    question, options = _needed(fields, "user_question_or_message", "question"), _texts(fields, "all_options")
    label = _needed(fields, "correct_answer").lower()
    right = [option for option in options if option.lower().startswith(label)]
    if len(right) != 1:
        raise BadRow(f"correct_answer {label!r:.20} begins {len(right)} of its {len(options)} options")
    end = int(_needed(fields, "end_index_in_shared_context"))
    if not 0 < end <= len(messages):
        raise BadRow(f"end_index_in_shared_context is {end} of {len(messages)} messages")
    sessions, text = _sessions(messages[:end]), right[0][len(label) :].strip()
    gold, answers = _by_distance(sessions, fields), (text, label) if text else (label,)
    return HistoryQuestion(
        id, question, answers, sessions, gold, kind=text_of(fields, "question_type"), language=language_of(question),
        options=tuple(options), own=_own(fields, "distance" if gold else ""),
    )


def _by_distance(sessions: Sequence[Session], fields: Fields) -> tuple[str, ...]:
    """The session that lies as far back as the evidence, of ``context_length_in_tokens``; none where nothing says."""
    try:
        tokens, length, blocks = (int(text_of(fields, name)) for name in _DISTANCES)
        back, named = tokens / length, len(sessions) - 1 - blocks
    except (ValueError, ZeroDivisionError):
        return ()
    ends = list(accumulate(sum(len(turn.content) for turn in session.turns) for session in sessions))
    place, near = (1 - back) * ends[-1], _NEAR * ends[-1]
    spans = list(zip([0, *ends], ends, strict=False))
    if 0 <= named < len(sessions) and spans[named][0] - near <= place <= spans[named][1] + near:
        return (sessions[named].id,)
    found = next((n for n, end in enumerate(ends) if place < end), len(sessions) - 1)
    return (sessions[found].id,)


def _linked_question(id: str, fields: Fields, messages: Messages) -> HistoryQuestion:
    asked = _literal(fields.get("user_query"))
    question = _needed(asked, "content") if isinstance(asked, dict) else _needed(fields, "user_query")
    right = _needed(fields, "correct_answer")
    texts = [right, *(text for text in _texts(fields, "incorrect_answers") if text != right)]
    random.Random(id).shuffle(texts)
    letters = [f"({letter})" for letter in ascii_lowercase[: len(texts)]]
    options = [f"{letter} {text}" for letter, text in zip(letters, texts, strict=True)]
    quoted = _literal(fields.get("related_conversation_snippet"))
    quoted = quoted if isinstance(quoted, list) else [quoted]  # a single one may stand for a list
    told = {text_of(message, "content") for message in quoted if isinstance(message, dict)} - {""}
    sessions = _sessions(messages)
    gold = tuple(s.id for s in sessions if any(turn.content.strip() in told for turn in s.turns))
    return HistoryQuestion(
        id, question, (right, letters[texts.index(right)]), sessions, gold, kind=text_of(fields, "pref_type"),
        language=language_of(question), options=tuple(options), own=_own(fields, "quotation" if gold else ""),
    )


def _own(fields: Fields, gold_by: str) -> dict[str, str]:
    own = {name: text_of(fields, name) for name in ("persona_id", "topic", "topic_query", "shared_context_id")}
    return own | {"gold_by": gold_by}


def _sessions(messages: Messages) -> tuple[Session, ...]:
    """Cut at system messages; with one at most, at a user's message behind ``SESSION_TURNS`` others."""
    marked = sum(message["role"] == "system" for message in messages) > 1
    cut: list[list[Turn]] = [[]]
    persona = ""
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "system" if marked else role == "user" and len(cut[-1]) >= SESSION_TURNS:
            cut.append([])
        if role != "system" or content != persona:
            cut[-1].append(Turn(role, content))
        persona = content if role == "system" else persona
    sessions = tuple(Session(f"session_{n}", tuple(talk)) for n, talk in enumerate(filter(None, cut)))
    if not sessions:
        raise BadRow("its history has no sessions")
    return sessions


def _literal(value: Any) -> Any:
    """The text, message or list that a cell writes as JSON or as Python does; the cell itself where it writes none."""
    if isinstance(value, str):
        for read in (orjson.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):
                return read(value)
    return value


def _texts(fields: Fields, name: str) -> list[str]:
    found = _literal(fields.get(name))
    if not isinstance(found, list) or not found or not all(isinstance(text, str) and text.strip() for text in found):
        raise BadRow(f"{name} is no list of texts")
    return [text.strip() for text in found]
