"""Turns rows of the known question answering data sets into training rows.

A ``Question`` is what every schema comes down to: a question, a document, all gold answers, and the few optional
fields worth keeping. Two schemas are known:

``memagent`` (BytedTsinghua-SIA/hotpotqa)::

    {"prompt": [{"role": "user", "content": "Who ...?"}], "context": "Document 1:\\n...",
     "reward_model": {"ground_truth": ["Ann", "Ann Lee"]}, "extra_info": {"question": "Who ...?"}}

    The question is the text of the user messages; ``prompt`` may also be that text itself. Without a prompt it is
    ``extra_info.question``.

``hotpotqa`` (distractor setting; paragraphs in the Hugging Face shape or the original one)::

    {"question": "Who ...?", "answer": "Ann", "context": {"title": ["Ann"], "sentences": [["Ann is.", " She was."]]}}
    {"question": "Who ...?", "answer": "Ann", "context": [["Ann", ["Ann is.", " She was."]]]}

    both become the document ``Document 1:\\nAnn\\nAnn is. She was.``

Lists may be numpy arrays, as pandas returns them. Invariants of a ``Question``: its texts are not blank and encode
as UTF-8; ``golds`` keeps the order of the data without duplicates. A row that cannot meet them raises ``BadRow``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..system.errors import MemAgentError


class BadRow(MemAgentError, ValueError):
    """A row without a usable question, document or gold answer; the message says which field and why."""


class Schema(StrEnum):
    MEMAGENT = "memagent"
    HOTPOTQA = "hotpotqa"


REQUIRED = {
    Schema.MEMAGENT: ("context", "reward_model"),
    Schema.HOTPOTQA: ("question", "answer", "context"),
}
_KEPT = ("id", "level", "type", "supporting_facts")
COLUMNS = frozenset({"prompt", "extra_info", "_id", *_KEPT}.union(*REQUIRED.values()))
"""Every field that is looked at; a reader may leave out all others."""


@dataclass(frozen=True, slots=True)
class Question:
    question: str
    context: str
    golds: tuple[str, ...]
    extras: dict[str, Any]
    """Fields that go into the training row's metadata unchanged."""


def schema_of(columns: Collection[str]) -> Schema | None:
    """The schema these columns belong to, judged by the columns only it has."""
    if "reward_model" in columns:
        return Schema.MEMAGENT
    if "question" in columns or "answer" in columns:
        return Schema.HOTPOTQA
    return None


def read_question(fields: Mapping[str, Any], schema: Schema) -> Question:
    """Raises BadRow."""
    match schema:
        case Schema.MEMAGENT:
            question = _memagent_question(fields)
            context = _text(fields.get("context"), "context")
            golds = _golds(_member(fields, "reward_model", "ground_truth"), "reward_model.ground_truth")
        case Schema.HOTPOTQA:
            question = _text(fields.get("question"), "question")
            context = _documents(_plain(fields.get("context")))
            golds = _golds(fields.get("answer"), "answer")
    return Question(question, context, golds, _extras(fields))


def _memagent_question(fields: Mapping[str, Any]) -> str:
    prompt = _plain(fields.get("prompt"))
    if isinstance(prompt, list):
        texts = [_message_text(message) for message in prompt]
        prompt = "\n\n".join(text for text in texts if text)
    if prompt is None or prompt == "":
        return _text(_member(fields, "extra_info", "question"), "prompt (and extra_info.question)")
    return _text(prompt, "prompt")


def _message_text(message: Any) -> str:
    """The text of a user message, whose content may come in parts; nothing for the other roles."""
    if not isinstance(message, Mapping):
        raise BadRow(f"prompt holds {_kind(message)}, expected chat messages")
    if message.get("role", "user") != "user":
        return ""
    content = _plain(message.get("content"))
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if not isinstance(content, str):
        raise BadRow(f"content of a prompt message is {_kind(content)}, expected text")
    return content


def _documents(context: Any) -> str:
    if isinstance(context, Mapping):
        titles, sentences = _plain(context.get("title")), _plain(context.get("sentences"))
        if not (isinstance(titles, list) and isinstance(sentences, list) and len(titles) == len(sentences)):
            raise BadRow("context has no title and sentences lists of equal length")
        paragraphs = [[title, body] for title, body in zip(titles, sentences, strict=True)]
    elif isinstance(context, list):
        paragraphs = [_plain(paragraph) for paragraph in context]
    else:
        raise BadRow(f"context is {_kind(context)}, expected paragraphs")
    if not paragraphs:
        raise BadRow("context is empty")
    text = "\n\n".join(f"Document {i}:\n{_paragraph(paragraph)}" for i, paragraph in enumerate(paragraphs, start=1))
    return _text(text, "context")


def _paragraph(paragraph: Any) -> str:
    match paragraph:
        case [str(title), list(sentences)] if all(isinstance(sentence, str) for sentence in sentences):
            return f"{title}\n{''.join(sentences)}"
    raise BadRow("context holds a paragraph that is not a title with a list of sentences")


def _golds(value: Any, name: str) -> tuple[str, ...]:
    value = _plain(value)
    golds = value if isinstance(value, list) else [value]
    for gold in golds:
        if gold is not None and not isinstance(gold, str):
            raise BadRow(f"{name} holds {_kind(gold)}, expected text")
    kept = tuple(dict.fromkeys(_text(gold, name) for gold in golds if gold and gold.strip()))
    if not kept:
        raise BadRow(f"{name} is missing or empty")
    return kept


def _extras(fields: Mapping[str, Any]) -> dict[str, Any]:
    extras = {key: _plain(fields[key]) for key in _KEPT if fields.get(key) is not None}
    if "id" not in extras and fields.get("_id") is not None:  # the original HotpotQA files
        extras = {"id": _plain(fields["_id"])} | extras
    return extras


def _member(fields: Mapping[str, Any], outer: str, inner: str) -> Any:
    value = fields.get(outer)
    return value.get(inner) if isinstance(value, Mapping) else None


def _text(value: Any, name: str) -> str:
    if value is None or value == "":
        raise BadRow(f"{name} is missing or empty")
    if not isinstance(value, str):
        raise BadRow(f"{name} is {_kind(value)}, expected text")
    if not value.strip():
        raise BadRow(f"{name} is blank")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadRow(f"{name} holds half a Unicode character (a lone surrogate)") from None
    return value


def _plain(value: Any) -> Any:
    """Lists for numpy arrays and tuples, however nested; everything else as it is."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _kind(value: Any) -> str:
    return "missing" if value is None else type(value).__name__
