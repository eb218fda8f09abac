"""A body of ``POST /v1/chat/completions`` as an agent needs it: document, messages with the question last, sampling.

Documents come in four ways, and all that a conversation has are read, in its order, joined by a blank line::

    {"messages": [{"role": "user", "content": "<document>\\n\\nQuestion: Who?"}]}             split_message
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "<document>"},
                                               {"type": "text", "text": "Who?"}]}]}            the last text asks
    {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}},
                                               {"type": "text", "text": "Who?"}]}]}            or "file_data"
    {"messages": [{"role": "user", "content": "Who?"}], "documents": ["<document>", {"file_id": "file-1"}]}

Earlier user messages give their documents and nothing else, so a conversation may go on about one; what was said
before is shown by agents that show messages (AGENT=chat), as are system messages.

What no agent can do (several answers, tools, log-probs, pictures) is refused, unless it is asked for in its neutral
value; fields that are unknown are ignored, as OpenAI's servers do.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .fields import BODY, DOCUMENT, MESSAGE, PART, STREAM_OPTIONS, checked
from .request_error import RequestError, shown
from .split_message import split_message

ReadFile = Callable[[str], str]
"""The text of an uploaded file by its id. Raises RequestError."""
ToText = Callable[[str, bytes], Awaitable[str]]
"""The text in a file's bytes, by its name. Raises RequestError."""
BETWEEN = "\n\n"

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,), "logprobs": (False, 0), "top_logprobs": (0,), "tools": ([],), "functions": ([],), "logit_bias": ({},),
    "presence_penalty": (0,), "frequency_penalty": (0,), "response_format": ({"type": "text"},), "audio": (),
    "modalities": (["text"],), "best_of": (1,), "echo": (False,), "suffix": ("",),
}
"""Fields that are understood in these values alone, besides null."""
_FILES = ("file", "input_file")
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOptions:
    """What all endpoints read alike."""

    sampling: Mapping[str, Any]
    seed: int | None
    answer_tokens: int
    """0: as the agent has it."""
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    messages: list[dict[str, str]]
    """Texts; the last user message is the question alone."""
    document: str
    options: AskedOptions


@dataclass(frozen=True, slots=True)
class MessageReader:
    """What it takes to read messages: how long a question may be, and where files are."""

    is_long: Callable[[str], bool]
    read_file: ReadFile
    to_text: ToText

    async def chat(self, body: Any) -> ChatRequest:
        """Raises RequestError."""
        given = checked("", body, BODY).get("messages")
        if not given:
            raise RequestError(400, "messages is empty; expected at least a question", param="messages")
        (request,) = await self.chats(body, [given])
        return request

    async def chats(self, body: Mapping[str, Any], conversations: Sequence[Sequence[Any]]) -> list[ChatRequest]:
        """One for each, all of them about the documents beside them, which are read once. Raises RequestError."""
        given = body.get("documents") or []
        documents = [await self._document(f"documents[{i}]", one) for i, one in enumerate(given)]
        beside = [BETWEEN.join(documents)] if documents else []
        return [await self._conversation(body, messages, beside) for messages in conversations]

    async def _conversation(
        self, body: Mapping[str, Any], given: Sequence[Any], beside: list[str]
    ) -> ChatRequest:
        last = max((i for i, m in enumerate(given) if isinstance(m, dict) and m.get("role") == "user"), default=-1)
        if last < 0:
            raise RequestError(400, "no message has the role user, so nothing is asked", param="messages")
        messages: list[dict[str, str]] = []
        of_messages: list[str] = []
        for number, message in enumerate(given):
            role, found, text = await self._message(f"messages[{number}]", message, has_document=bool(beside))
            of_messages += found
            if text or number == last:
                messages.append({"role": role, "content": text})
        return ChatRequest(
            messages=messages, document=BETWEEN.join([*beside, *of_messages]), options=options_of(body)
        )

    async def _message(
        self, where: str, message: Any, *, has_document: bool
    ) -> tuple[str, list[str], str]:
        """Role, documents and text of one message."""
        said = checked(where, message, MESSAGE).get("role")
        if said not in _ROLES:
            known = ", ".join(_ROLES)
            raise RequestError(400, f"{where}.role={shown(said)}: expected one of {known}", param=where)
        role, content = _ROLES[said], message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        for part in parts:
            checked(f"{where}.content", part, PART)
        files = [await self._document(f"{where}.content", part) for part in parts if part.get("type") in _FILES]
        texts = [_text(f"{where}.content", part) for part in parts if part.get("type") not in _FILES]
        if role != "user":
            return role, files, "\n".join(texts)
        *before, last = texts or [""]
        if files or before or has_document:
            return role, [*files, *filter(str.strip, before)], last.strip()
        document, question = await asyncio.to_thread(split_message, last, self.is_long)
        return role, [document] if document else [], question

    async def _document(self, where: str, given: Any) -> str:
        """The text of one document; a part of type ``file`` has its file inside. Raises RequestError."""
        if isinstance(given, str):
            return given
        inside = given.get("file") or given if isinstance(given, dict) else None
        if isinstance(inside, dict):
            checked(where, inside, DOCUMENT)
            if (name := inside.get("file_id")) is not None:
                return self.read_file(name)
            if (data := inside.get("file_data")) is not None:
                return await self.to_text(inside.get("filename") or "file", _bytes(where, data))
            text = inside.get("content") if inside.get("text") is None else inside["text"]
            if text is not None:
                title = inside.get("title")
                return f"{title}\n{text}" if title else text
        forms = "a text, {text}, {file_id} or {file_data, filename}"
        raise RequestError(400, f"{where}: expected {forms}", param=where)


def _bytes(where: str, data: str) -> bytes:
    """``data:text/plain;base64,...``, or the base64 alone."""
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:  # binascii.Error, or characters that are no ASCII
        raise RequestError(400, f"{where}: file_data is not base64", param=where) from None


def _text(where: str, part: Mapping[str, Any]) -> str:
    if part.get("type") in ("text", "input_text") and part.get("text") is not None:
        return part["text"]
    kind = f"type {shown(part['type'])}" if part.get("type") else "no type"
    raise RequestError(400, f"{where}: a part of {kind}; agents read text and files alone", param=where)


# --- what is not the messages ---------------------------------------------------------------------------------------


def options_of(body: Mapping[str, Any]) -> AskedOptions:
    """Of a body whose fields are of their kinds. Raises RequestError."""
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            told = f"{name}={shown(value)} is not supported"
            raise RequestError(400, told, param=name, code="unsupported_parameter")
    sampling = {
        "temperature": _number(body, "temperature", 0.0, 2.0),
        "top_p": _number(body, "top_p", 1e-6, 1.0),
        "top_k": _whole(body, "top_k", -1),
        "repetition_penalty": _number(body, "repetition_penalty", 1e-6, 10.0),
    }
    tokens = _whole(body, "max_completion_tokens", 1) or _whole(body, "max_tokens", 1) or 0
    stream_options = checked("stream_options", body.get("stream_options") or {}, STREAM_OPTIONS)
    return AskedOptions(
        sampling={name: value for name, value in sampling.items() if value is not None},
        seed=_whole(body, "seed", -(2**63)),
        answer_tokens=tokens,
        stop=_stops(body.get("stop")),
        stream=bool(body.get("stream")),
        include_usage=bool(stream_options.get("include_usage")),
    )


def _stops(given: str | list[str] | None) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else given or []
    return tuple(filter(None, stops))


def _number(body: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if not least <= value <= most:
        raise RequestError(400, f"{name}={shown(value)}: allowed: {least:g} to {most:g}", param=name)
    return float(value)


def _whole(body: Mapping[str, Any], name: str, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if value < least:
        raise RequestError(400, f"{name}={shown(value)}: expected a whole number from {least} on", param=name)
    return value
