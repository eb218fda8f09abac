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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from ..sessions.records import HistoryQuestion, Session, Turn, language_of
from ..system.errors import reason_of
from .asked import Asked, BadQuestion, needed, text_of, unreadable
from .sources import SourceError, open_file

SESSION_TURNS = 10
_NEAR = 0.015
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""Of options."""
Messages = Sequence[Mapping[str, Any]]


def read_personamem(
    paths: Sequence[Path], contexts: Path | None, *, size: str = "32k", session_turns: int = SESSION_TURNS
) -> Iterator[Asked]:
    """``contexts`` is the JSONL file of version 1, or the folder that the links of version 2 start from."""
    if contexts is None:
        raise SourceError("--contexts: name PersonaMem's shared_contexts file, or the folder of its histories")
    shared = _Contexts(contexts) if contexts.is_file() else None
    histories = lru_cache(maxsize=2)(shared.messages if shared else partial(_linked, contexts))
    for path in paths:
        for number, row in enumerate(open_file(path).rows):
            if row.fields is None:
                yield unreadable(f"{path.name}: {row.where}", row.problem)
                continue
            if shared:
                history = text_of(row.fields, "shared_context_id")
                id = text_of(row.fields, "question_id") or f"{path.stem}_{number}"
                build = partial(_shared_question, id, row.fields, histories, session_turns)
            else:
                history = text_of(row.fields, f"chat_history_{size}_link", "chat_history_link")
                id = text_of(row.fields, "question_id") or f"{text_of(row.fields, 'persona_id')}_{number}"
                build = partial(_linked_question, id, row.fields, partial(histories, history), session_turns, size)
            yield Asked(f"{path.name}: {row.where} ({id})", id, history, build)


# --- version 1 ------------------------------------------------------------------------------------------------------


class _Contexts:
    """The contexts of one JSONL file; a line is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._offsets = path, dict[str, int]()
        position = 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    self._offsets |= dict.fromkeys(orjson.loads(line) if line.strip() else (), position)
                except (ValueError, TypeError) as error:
                    raise SourceError(f"{path}: line {number}: expected {{id: [messages]}} ({error})") from None
                position += len(line)

    def messages(self, id: str) -> Messages:
        if id not in self._offsets:
            raise BadQuestion(f"its context {id!r} is not in {self._path.name}")
        with self._path.open("rb") as file:
            file.seek(self._offsets[id])
            return _checked(orjson.loads(file.readline())[id])


def _shared_question(id: str, entry: Mapping[str, Any], histories: Any, turns: int) -> HistoryQuestion:
    question = needed(entry, "user_question_or_message", "question")
    options = _literal_texts(entry, "all_options")
    label = needed(entry, "correct_answer").lower()
    right = [option for option in options if option.strip().lower().startswith(label)]
    if len(right) != 1:
        raise BadQuestion(f"correct_answer {label!r:.20} begins {len(right)} of its {len(options)} options")
    messages = histories(needed(entry, "shared_context_id"))
    end = _whole(entry, "end_index_in_shared_context")
    if not 0 < end <= len(messages):
        raise BadQuestion(f"end_index_in_shared_context is {end} of {len(messages)} messages")
    sessions = _sessions(messages[:end], turns)
    gold = _by_distance(sessions, entry)
    return _made(
        id, question, (right[0].strip()[len(label) :].strip(), label), sessions, gold, options,
        text_of(entry, "question_type"), entry, "distance",
    )


def _by_distance(sessions: Sequence[Session], entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The session that lies as far back as the evidence, of ``context_length_in_tokens``; none where nothing says."""
    try:
        back = _whole(entry, "distance_to_ref_in_tokens") / _whole(entry, "context_length_in_tokens")
        named = len(sessions) - 1 - _whole(entry, "distance_to_ref_in_blocks")
    except (BadQuestion, ZeroDivisionError):
        return ()
    ends = list(accumulate(sum(len(turn.content) for turn in session.turns) for session in sessions))
    place, near = (1 - back) * ends[-1], _NEAR * ends[-1]
    spans = list(zip([0, *ends], ends, strict=False))
    if 0 <= named < len(sessions) and spans[named][0] - near <= place <= spans[named][1] + near:
        return (sessions[named].id,)
    found = next((n for n, (_, end) in enumerate(spans) if place < end), len(sessions) - 1)
    return (sessions[found].id,)


# --- version 2 ------------------------------------------------------------------------------------------------------


def _linked(folder: Path, link: str) -> Messages:
    try:
        found = orjson.loads((folder / link).read_bytes())
    except (OSError, ValueError) as error:
        raise BadQuestion(f"its history {link!r} in {folder} cannot be read ({reason_of(error)})") from None
    if isinstance(found, dict):
        found = next((found[key] for key in ("chat_history", "conversations") if key in found), found)
    return _checked(found)


def _linked_question(id: str, entry: Mapping[str, Any], history: Any, turns: int, size: str) -> HistoryQuestion:
    asked = _literal(entry.get("user_query"))
    question = needed(asked, "content") if isinstance(asked, dict) else needed(entry, "user_query")
    right = needed(entry, "correct_answer")
    texts = [right, *(text for text in _literal_texts(entry, "incorrect_answers") if text != right)]
    random.Random(id).shuffle(texts)
    if len(texts) > len(_LETTERS):
        raise BadQuestion(f"{len(texts)} options, more than there are letters")
    letters = [f"({letter})" for letter in _LETTERS[: len(texts)]]
    needed(entry, f"chat_history_{size}_link", "chat_history_link")
    sessions = _sessions(history(), turns)
    quoted = _literal(entry.get("related_conversation_snippet"))
    told = _contents(quoted)
    gold = tuple(s.id for s in sessions if any(turn.content.strip() in told for turn in s.turns))
    options = [f"{letter} {text}" for letter, text in zip(letters, texts, strict=True)]
    return _made(id, question, (right, letters[texts.index(right)]), sessions, gold, options,
                 text_of(entry, "pref_type"), entry, "quotation")


def _contents(messages: Any) -> set[str]:
    """What quoted messages say; a single one may stand for a list."""
    listed = messages if isinstance(messages, list) else [messages]
    return {text_of(message, "content") for message in listed if isinstance(message, dict)} - {""}


# --- both -----------------------------------------------------------------------------------------------------------


def _made(
    id: str, question: str, answers: tuple[str, ...], sessions: tuple[Session, ...], gold: tuple[str, ...],
    options: Sequence[str], kind: str, entry: Mapping[str, Any], gold_by: str,
) -> HistoryQuestion:
    own = {name: text_of(entry, name) for name in ("persona_id", "topic", "topic_query", "shared_context_id")}
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


def _checked(messages: Any) -> Messages:
    try:
        if messages and all(isinstance(message[key], str) for message in messages for key in ("role", "content")):
            return messages
    except (TypeError, KeyError):
        pass
    raise BadQuestion("its history is no list of messages with role and content")


def _literal(value: Any) -> Any:
    """The text, message or list that a cell writes as JSON or as Python does; the cell itself where it writes none."""
    if isinstance(value, str):
        for read in (orjson.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):
                return read(value)
    return value


def _literal_texts(entry: Mapping[str, Any], name: str) -> list[str]:
    found = _literal(entry.get(name))
    if not isinstance(found, list) or not found or not all(isinstance(text, str) and text.strip() for text in found):
        raise BadQuestion(f"{name} is no list of texts")
    return [text.strip() for text in found]


def _whole(entry: Mapping[str, Any], name: str) -> int:
    text = text_of(entry, name)
    try:
        return int(text)
    except ValueError:
        raise BadQuestion(f"{name} is {text!r:.20}, no number") from None
