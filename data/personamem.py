"""PersonaMem, both versions (Jiang et al. 2025), as multiple-choice questions about histories.

Version 1: ``questions_32k.csv`` (128k, 1M) and ``shared_contexts_32k.jsonl``, whose lines are ``{id: [messages]}``. A
question is asked behind the first ``end_index_in_shared_context`` messages of the context ``shared_context_id``; the
rest is the future. Each session begins with a system message, the persona's description, which says the same every
time and is kept in the first session alone. ``correct_answer`` is "(c)", ``all_options`` a list of "(a) ...".

Version 2: ``benchmark.csv`` names a history file for each question, in ``chat_history_32k_link`` (128k), below the
folder of ``--contexts``. ``user_query`` is a message, ``correct_answer`` a text; with ``incorrect_answers`` it makes
options (a), (b) ... in an order that the question's id decides. Its histories do not say where sessions begin: they
are cut before a user's message once a session has ``session_turns`` messages.

Accepted answers are the text of the right option and its letter "(c)".

Gold sessions. Version 2 quotes the messages that tell (``related_conversation_snippet``): sessions that hold one of
them. Version 1 says how far back they are, in blocks, tokens, and as a share of the context: the session there is
gold, found by characters in place of tokens, so by estimate; of neighbours at most 1.5% of the context off the one
that the blocks name is taken. How MemSifter found them is not published.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import orjson

from ..sessions.records import HistoryQuestion, Session, Turn, language_of
from ..system.errors import reason_of
from .histories import BadQuestion, Entry, Fields, Reader, entry, needed, text_of
from .rows import DataError

SESSION_TURNS = 10
_NEAR = 0.015
Messages = Sequence[Mapping[str, Any]]
History = Callable[[], Messages]


def personamem_reader(contexts: Path | None, *, size: str = "32k", session_turns: int = SESSION_TURNS) -> Reader:
    """``contexts`` is the JSONL file of version 1, or the folder that the links of version 2 start from."""
    if contexts is None:
        raise DataError("--contexts: name PersonaMem's shared_contexts file, or the folder of its histories")
    shared = contexts.is_file()
    links = ("shared_context_id",) if shared else (f"chat_history_{size}_link", "chat_history_link")
    question = _shared_question if shared else _linked_question
    named = partial(_shared_history, contexts, _contexts(contexts)) if shared else partial(_linked_history, contexts)
    histories = lru_cache(maxsize=2)(named)

    def read(path: Path, number: int, place: str, fields: Fields) -> Iterator[Entry]:
        near = path.stem if shared else text_of(fields, "persona_id")
        id = text_of(fields, "question_id") or f"{near}_{number}"
        build = partial(question, id, fields, lambda: histories(needed(fields, *links)), session_turns)
        yield entry(f"{path.name}: {place} ({id})", id, text_of(fields, *links), build)

    return read


# --- version 1 ------------------------------------------------------------------------------------------------------


def _contexts(path: Path) -> dict[str, Any]:
    """All of the file, some 100 MB at most; what is no list of messages is told of its questions."""
    found: dict[str, Any] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                found |= orjson.loads(line) if line.strip() else {}
            except (ValueError, TypeError) as error:
                raise DataError(f"{path}: line {number}: expected {{id: [messages]}} ({error})") from None
    return found


def _shared_history(path: Path, contexts: Mapping[str, Any], id: str) -> Messages:
    if id not in contexts:
        raise BadQuestion(f"its context {id!r} is not in {path.name}")
    return _messages(contexts[id])


def _shared_question(id: str, fields: Fields, history: History, turns: int) -> HistoryQuestion:
    question = needed(fields, "user_question_or_message", "question")
    options = _literal_texts(fields, "all_options")
    label = needed(fields, "correct_answer").lower()
    right = [option for option in options if option.lower().startswith(label)]
    if len(right) != 1:
        raise BadQuestion(f"correct_answer {label!r:.20} begins {len(right)} of its {len(options)} options")
    messages = history()
    end = _whole(fields, "end_index_in_shared_context")
    if not 0 < end <= len(messages):
        raise BadQuestion(f"end_index_in_shared_context is {end} of {len(messages)} messages")
    sessions = _sessions(messages[:end], turns)
    answers, kind = (right[0][len(label) :].strip(), label), text_of(fields, "question_type")
    return _made(id, question, answers, sessions, _by_distance(sessions, fields), options, kind, fields, "distance")


def _by_distance(sessions: Sequence[Session], fields: Fields) -> tuple[str, ...]:
    """The session that lies as far back as the evidence, of ``context_length_in_tokens``; none where nothing says."""
    try:
        back = _whole(fields, "distance_to_ref_in_tokens") / _whole(fields, "context_length_in_tokens")
        named = len(sessions) - 1 - _whole(fields, "distance_to_ref_in_blocks")
    except (BadQuestion, ZeroDivisionError):
        return ()
    ends = list(accumulate(sum(len(turn.content) for turn in session.turns) for session in sessions))
    place, near = (1 - back) * ends[-1], _NEAR * ends[-1]
    spans = list(zip([0, *ends], ends, strict=False))
    if 0 <= named < len(sessions) and spans[named][0] - near <= place <= spans[named][1] + near:
        return (sessions[named].id,)
    found = next((n for n, end in enumerate(ends) if place < end), len(sessions) - 1)
    return (sessions[found].id,)


# --- version 2 ------------------------------------------------------------------------------------------------------


def _linked_history(folder: Path, link: str) -> Messages:
    try:
        found = orjson.loads((folder / link).read_bytes())
    except (OSError, ValueError) as error:
        raise BadQuestion(f"its history {link!r} in {folder} cannot be read ({reason_of(error)})") from None
    if isinstance(found, dict):
        found = next((found[key] for key in ("chat_history", "conversations") if key in found), found)
    return _messages(found)


def _linked_question(id: str, fields: Fields, history: History, turns: int) -> HistoryQuestion:
    asked = _literal(fields.get("user_query"))
    question = needed(asked, "content") if isinstance(asked, dict) else needed(fields, "user_query")
    right = needed(fields, "correct_answer")
    texts = [right, *(text for text in _literal_texts(fields, "incorrect_answers") if text != right)]
    if len(texts) > len(ascii_lowercase):
        raise BadQuestion(f"{len(texts)} options, more than there are letters")
    random.Random(id).shuffle(texts)
    letters = [f"({letter})" for letter in ascii_lowercase[: len(texts)]]
    options = [f"{letter} {text}" for letter, text in zip(letters, texts, strict=True)]
    sessions = _sessions(history(), turns)
    quoted = _literal(fields.get("related_conversation_snippet"))
    quoted = quoted if isinstance(quoted, list) else [quoted]  # a single one may stand for a list
    told = {text_of(message, "content") for message in quoted if isinstance(message, dict)} - {""}
    gold = tuple(s.id for s in sessions if any(turn.content.strip() in told for turn in s.turns))
    answers, kind = (right, letters[texts.index(right)]), text_of(fields, "pref_type")
    return _made(id, question, answers, sessions, gold, options, kind, fields, "quotation")


# --- both -----------------------------------------------------------------------------------------------------------


def _made(
    id: str, question: str, answers: tuple[str, ...], sessions: tuple[Session, ...], gold: tuple[str, ...],
    options: Sequence[str], kind: str, fields: Fields, gold_by: str,
) -> HistoryQuestion:
    own = {name: text_of(fields, name) for name in ("persona_id", "topic", "topic_query", "shared_context_id")}
    return HistoryQuestion(
        id, question, tuple(dict.fromkeys(filter(None, answers))), sessions, gold, kind=kind,
        language=language_of(question), options=tuple(options), own=own | {"gold_by": gold_by if gold else ""},
    )


def _sessions(messages: Messages, turns: int) -> tuple[Session, ...]:
    """Cut at system messages; with one at most, at a user's message behind ``turns`` others. Raises BadQuestion."""
    marked = sum(message["role"] == "system" for message in messages) > 1
    cut: list[list[Turn]] = []
    persona = ""
    for message in messages:
        role, content = message["role"], message["content"]
        begins = role == "system" if marked else role == "user" and len(cut[-1] if cut else ()) >= turns
        if begins or not cut:
            cut.append([])
        if role != "system" or content != persona:
            cut[-1].append(Turn(role, content))
        persona = content if role == "system" else persona
    sessions = tuple(Session(f"session_{n}", tuple(talk)) for n, talk in enumerate(filter(None, cut)))
    if not sessions:
        raise BadQuestion("its history has no sessions")
    return sessions


def _messages(found: Any) -> Messages:
    with suppress(TypeError, KeyError):
        if found and all(isinstance(message[key], str) for message in found for key in ("role", "content")):
            return found
    raise BadQuestion("its history is no list of messages with role and content")


def _literal(value: Any) -> Any:
    """The text, message or list that a cell writes as JSON or as Python does; the cell itself where it writes none."""
    if isinstance(value, str):
        for read in (orjson.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):
                return read(value)
    return value


def _literal_texts(fields: Fields, name: str) -> list[str]:
    found = _literal(fields.get(name))
    if not isinstance(found, list) or not found or not all(isinstance(text, str) and text.strip() for text in found):
        raise BadQuestion(f"{name} is no list of texts")
    return [text.strip() for text in found]


def _whole(fields: Fields, name: str) -> int:
    text = text_of(fields, name)
    try:
        return int(text)
    except ValueError:
        raise BadQuestion(f"{name} is {text!r:.20}, no number") from None
