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

A closing ``Answer:`` is part of no message: it is a prompt's last line, or stands behind the end of a sentence.

A message that holds document and question in one text is split::

    text                                            document         question
    "<any text>\n\nQuestion: Who?\nAnswer:"         <any text>       Who?
    "<long text>\n\nWho has the key?"               <long text>      Who has the key?
    "Question: Who?\n\n<long text>"                 <long text>      Who?
    "Who has the key?"                                               Who has the key?
    "Question: Who? Answer:"                                         Who?

The rule, in this order; a text is long if it has more tokens than a question may have (MEM_MAX_QUESTION):

1. Behind the last line that begins with ``Question:`` stands the question, before it the document.
2. A text that is not long is a question.
3. A long text that begins with ``Question:`` has its question in the first paragraph, the document behind it.
4. Of any other long text the last paragraph is the question. Where there are no paragraphs, lines are meant.

Prompts with solved examples (``Question: ... Answer: ...``, then the question) fall under the first rule: the
examples are read as a document.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Base64Bytes, BaseModel, BeforeValidator, Field, model_validator

_ANSWER = re.compile(r"(?:\A|(?<=[\n.?!]))[ \t]*answer[ \t]*:\s*\Z", re.IGNORECASE)
_QUESTION = re.compile(r"^[ \t]*question[ \t]*:", re.IGNORECASE | re.MULTILINE)
_BREAK = re.compile(r"\n[ \t]*\n")


def _without_nulls(given: Any) -> Any:
    return {name: value for name, value in given.items() if value is not None} if isinstance(given, dict) else given


def _as_parts(given: Any) -> Any:
    return [{"type": "text", "text": given}] if isinstance(given, str) else given or []


class Document(BaseModel):
    """One of ``text``, ``file_id`` of an upload, or ``file_data`` in base64, perhaps as a data URL."""

    file_id: str = ""
    file_data: Annotated[Base64Bytes, BeforeValidator(lambda data: str(data).rpartition(",")[2])] = b""
    filename: str = "file"
    title: str = ""
    text: str = ""


class Part(BaseModel):
    type: Literal["text", "file"]
    text: str = ""
    file: Document | None = None


class Message(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Part], BeforeValidator(_as_parts)] = []


class ChatRequest(BaseModel, strict=True):
    model: str = ""
    messages: list[Message]
    documents: list[str | Document] = []
    stream: bool = False
    stream_options: dict[str, bool] = {}
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    seed: int | None = None
    answer_tokens: int = Field(0, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    stop: str | list[str] = []
    n: Literal[1] = 1
    logprobs: Literal[False] = False
    tools: list[Any] = Field([], max_length=0)
    response_format: dict[Literal["type"], Literal["text"]] = {}

    _nulls = model_validator(mode="before")(_without_nulls)

    def options(self) -> dict[str, Any]:
        """Those of ``AskingReader.read``."""
        sampling = self.model_dump(include={"temperature", "top_p", "top_k"}, exclude_none=True)
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return {"seed": self.seed, "sampling": sampling, "stop": list(filter(None, stops)),
                "answer_tokens": self.answer_tokens}


async def conversation(
    request: ChatRequest, is_long: Callable[[str], bool], text_of: Callable[[str | Document], Awaitable[str]]
) -> tuple[list[dict[str, str]], str]:
    """Messages as texts, of which the last user's is the question alone, and the text of all documents.

    Where there are ``documents`` beside the messages, no message is split.
    """
    documents, messages = [await text_of(document) for document in request.documents], []
    for message in request.messages:
        files = [await text_of(part.file) for part in message.content if part.file]
        *before, said = [part.text for part in message.content if part.type == "text"] or [""]
        if message.role != "user":
            before, said = [], "\n".join([*before, said])
        elif request.documents or files or before:
            said = without_answer(said)
        else:
            document, said = await asyncio.to_thread(split_message, said, is_long)
            before = [document]
        documents += [*files, *filter(str.strip, before)]
        if said.strip() or message is request.messages[-1]:
            messages.append({"role": message.role.replace("developer", "system"), "content": said.strip()})
    return messages, "\n\n".join(documents)


def without_answer(text: str) -> str:
    """The text, stripped, without a closing ``Answer:``."""
    return _ANSWER.sub("", text.strip()).rstrip()


def split_message(text: str, is_long: Callable[[str], bool]) -> tuple[str, str]:
    """Document and question, stripped."""
    text = without_answer(text)
    marks = list(_QUESTION.finditer(text))
    if marks and (question := text[marks[-1].end() :].strip()):
        document = text[: marks[-1].start()].strip()
        if document or not is_long(text):
            return document, question
    if not is_long(text):
        return "", text
    breaks = list(_BREAK.finditer(text)) or list(re.finditer("\n", text))
    if not breaks:
        return "", text
    if marks and not marks[0].start():
        return text[breaks[0].end() :].strip(), text[marks[0].end() : breaks[0].start()].strip()
    return text[: breaks[-1].start()].strip(), text[breaks[-1].end() :].strip()
