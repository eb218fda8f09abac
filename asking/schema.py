r"""Bodies of requests as clients send them, and what an agent reads of them: messages, documents, options.

Documents come in four ways, and all that a conversation has are read, in its order, joined by a blank line::

    {"messages": [{"role": "user", "content": "<document>\n\nQuestion: Who?"}]}             see below
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

A message that holds document and question in one text is split::

    text                                            document         question
    "<any text>\n\nQuestion: Who?\nAnswer:"         <any text>       Who?
    "<long text>\n\nWho has the key?"               <long text>      Who has the key?
    "Question: Who?\n\n<long text>"                 <long text>      Who?
    "Who has the key?"                                               Who has the key?
    "Question: Who?\nAnswer:"                                        Who?

The rule, in this order; a text is long if it has more tokens than a question may have (MEM_MAX_QUESTION):

1. A last line ``Answer:`` belongs to neither.
2. Behind the last line that begins with ``Question:`` stands the question, before it the document.
3. A text that is not long is a question.
4. A long text that begins with ``Question:`` has its question in the first paragraph, the document behind it.
5. Of any other long text the last paragraph is the question (the last line, where there are no paragraphs).

Prompts with solved examples (``Question: ... Answer: ...``, then the question) fall under the second rule: the
examples are read as a document.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from .steps import Options

_NEUTRAL: dict[str, Any] = {
    "n": 1, "logprobs": False, "top_logprobs": 0, "tools": [], "functions": [], "logit_bias": {},
    "presence_penalty": 0, "frequency_penalty": 0, "modalities": ["text"], "response_format": {"type": "text"},
}
"""Fields that are understood in this value alone, besides null."""
_QUESTION = re.compile(r"^[ \t]*question[ \t]*:", re.IGNORECASE | re.MULTILINE)
_ANSWER = re.compile(r"[ \t]*answer[ \t]*:", re.IGNORECASE)
_BREAK = re.compile(r"\n[ \t]*\n")
_END = 2**16
"""Characters of a text's end that may hold the question."""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _listed(given: Any, alone: Any) -> Any:
    return [alone] if isinstance(given, str) else given


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class Document(_Strict):
    """One of ``text``, ``file_id`` of an upload, or ``file_data`` in base64, perhaps as a data URL."""

    file_id: str = ""
    file_data: str = ""
    filename: str = "file"
    title: str = ""
    text: str = Field("", validation_alias=AliasChoices("text", "content"))

    @model_validator(mode="before")
    @classmethod
    def _of_a_text(cls, given: Any) -> Any:
        return {"text": given} if isinstance(given, str) else given

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
    content: Annotated[list[Part], BeforeValidator(lambda given: _listed(given, {"type": "text", "text": given}))] = []


class StreamOptions(_Strict):
    include_usage: bool = False


class ChatRequest(_Strict):
    model: str = ""
    messages: list[Message]
    documents: list[Document] = []
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    max_tokens: int = Field(0, ge=1)
    max_completion_tokens: int = Field(0, ge=1)
    stop: Annotated[list[str], BeforeValidator(lambda given: _listed(given, given))] = []

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, given: Any) -> Any:
        given = _without_nulls(given)
        for name in _NEUTRAL if isinstance(given, dict) else ():
            if name in given and given[name] != _NEUTRAL[name]:
                raise PydanticCustomError("unsupported", "not supported by an agent", {"field": name})
        return given

    @model_validator(mode="after")
    def _asks(self) -> ChatRequest:
        if not any(message.role == "user" for message in self.messages):
            raise PydanticCustomError("no_question", "no message has the role user", {"field": "messages"})
        return self

    def options(self, document_tokens: int, seconds: float) -> Options:
        sampling = self.model_dump(include={"temperature", "top_p", "top_k"}, exclude_none=True)
        return Options(self.seed, sampling, tuple(filter(None, self.stop)),
                       self.max_completion_tokens or self.max_tokens, document_tokens, seconds)


async def conversation(
    request: ChatRequest, is_long: Callable[[str], bool], text_of: Callable[[Document], Awaitable[str]]
) -> tuple[list[dict[str, str]], str]:
    """Messages as texts, of which the last user's is the question alone, and the text of all documents.

    Where there are ``documents`` beside the messages, no message is split.
    """
    found, messages = [await text_of(document) for document in request.documents], []
    for message in request.messages:
        files = [await text_of(part.file) for part in message.content if isinstance(part, FilePart)]
        *before, said = [part.text for part in message.content if isinstance(part, TextPart)] or [""]
        if message.role != "user":
            before, said = [], "\n".join([*before, said])
        elif not (request.documents or files or before):
            document, said = await asyncio.to_thread(split_message, said, is_long)
            before = [document]
        found += [*files, *filter(str.strip, before)]
        messages.append({"role": message.role.replace("developer", "system"), "content": said.strip()})
    last = max(number for number, message in enumerate(messages) if message["role"] == "user")
    kept = [message for number, message in enumerate(messages) if message["content"] or number == last]
    return kept, "\n\n".join(found)


def split_message(text: str, is_long: Callable[[str], bool]) -> tuple[str, str]:
    """Document and question, stripped."""
    text = text.strip()
    before, _, last_line = text.rpartition("\n")
    if before and _ANSWER.fullmatch(last_line):
        text = before.rstrip()
    front, end = text[:-_END], text[-_END:]
    marks = list(_QUESTION.finditer(end))
    if marks and (question := end[marks[-1].end() :].strip()):
        document = (front + end[: marks[-1].start()]).strip()
        if document or not is_long(text):
            return document, question
    if not is_long(text):
        return "", text
    first = _QUESTION.match(text)
    gap = _BREAK.search(text, 0, _END)
    if first and gap and (question := text[first.end() : gap.start()].strip()):
        return text[gap.end() :].strip(), question
    breaks = [found.span() for found in _BREAK.finditer(end)] or [(max(0, end.rfind("\n")),) * 2]
    return (front + end[: breaks[-1][0]]).strip(), end[breaks[-1][1] :].strip()
