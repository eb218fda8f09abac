"""Bodies of requests as clients send them, and what an agent reads of them: messages, documents, options.

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
value. A value of another type is refused too (``"stream": "false"``); null is a field that is not there, and unknown
fields are ignored, as OpenAI's servers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from .split_message import split_message
from .steps import Options

_NEUTRAL: dict[str, Any] = {
    "n": 1, "best_of": 1, "logprobs": False, "top_logprobs": 0, "echo": False, "suffix": "", "tools": [],
    "functions": [], "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0, "modalities": ["text"],
    "response_format": {"type": "text"}, "audio": None,
}  # fmt: skip
"""Fields that are understood in this value alone, besides null."""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_parts(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _as_document(given: Any) -> Any:
    return {"text": given} if isinstance(given, str) else given


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class Document(_Strict):
    """One of ``text``, ``file_id`` of an upload, or ``file_data`` in base64, perhaps as a data URL."""

    file_id: str = ""
    file_data: str = ""
    filename: str = "file"
    title: str = ""
    text: str = Field("", validation_alias=AliasChoices("text", "content"))

    @model_validator(mode="after")
    def _has_something(self) -> Document:
        if not self.model_fields_set & {"file_id", "file_data", "text"}:
            raise ValueError("expected a text, {text}, {file_id} or {file_data, filename}")
        return self


class TextPart(_Strict):
    type: Literal["text"]
    text: str


class FilePart(_Strict):
    type: Literal["file"]
    file: Document


Part = Annotated[TextPart | FilePart, Field(discriminator="type")]


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Part], BeforeValidator(_as_parts)] = []


class StreamOptions(_Strict):
    include_usage: bool = False


class AgentRequest(_Strict):
    """What both kinds of requests have."""

    model: str = ""
    documents: list[Annotated[Document, BeforeValidator(_as_document)]] = []
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    max_tokens: int = Field(0, ge=1)
    max_completion_tokens: int = Field(0, ge=1)
    stop: Annotated[list[str], BeforeValidator(_listed)] = []

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, given: Any) -> Any:
        given = _without_nulls(given)
        for name in _NEUTRAL if isinstance(given, dict) else ():
            if name in given and given[name] != _NEUTRAL[name]:
                raise PydanticCustomError("unsupported", "not supported by an agent", {"field": name})
        return given

    def options(self, document_tokens: int, seconds: float) -> Options:
        sampling = self.model_dump(include={"temperature", "top_p", "top_k", "repetition_penalty"}, exclude_none=True)
        return Options(
            seed=self.seed,
            sampling=sampling,
            stop=tuple(filter(None, self.stop)),
            answer_tokens=self.max_completion_tokens or self.max_tokens,
            document_tokens=document_tokens,
            seconds=seconds,
        )


class ChatRequest(AgentRequest):
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    @model_validator(mode="after")
    def _asks(self) -> ChatRequest:
        if not any(message.role == "user" for message in self.messages):
            raise PydanticCustomError("no_question", "no message has the role user", {"field": "messages"})
        return self


class CompletionRequest(AgentRequest):
    prompt: Annotated[list[str], BeforeValidator(_listed)] = Field(min_length=1)
    stream: Literal[False] = False


async def conversation(
    given: list[Message],
    documents: list[str],
    is_long: Callable[[str], bool],
    text_of: Callable[[Document], Awaitable[str]],
) -> tuple[list[dict[str, str]], str]:
    """Messages as texts, of which the last user's is the question alone, and the text of all documents.

    ``documents`` are those beside the messages; where there are some, no message is split.
    """
    found, messages = list(documents), []
    for message in given:
        files = [await text_of(part.file) for part in message.content if isinstance(part, FilePart)]
        texts = [part.text for part in message.content if isinstance(part, TextPart)]
        before: list[str] = []
        if message.role == "user":
            *before, said = texts or [""]
            if not (documents or files or before):
                document, said = await asyncio.to_thread(split_message, said, is_long)
                before = [document]
        else:
            said = "\n".join(texts)
        found += [*files, *filter(str.strip, before)]
        role = "system" if message.role == "developer" else message.role
        messages.append({"role": role, "content": said.strip()})
    last = max(number for number, message in enumerate(messages) if message["role"] == "user")
    kept = [message for number, message in enumerate(messages) if message["content"] or number == last]
    return kept, "\n\n".join(found)
