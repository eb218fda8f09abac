"""An OpenAI-compatible endpoint whose model is a memory agent: paths, keys, limits and streams.

==========================  =========================================================================
POST /v1/chat/completions   documents in, answer out; ``stream`` tells the memory as it grows
POST, GET /v1/files         documents to be named by id in messages; DELETE /v1/files/ID
GET /v1/models              the one model
GET /health, /metrics       whether its engines answer; Prometheus
==========================  =========================================================================

Invariants:
- a client that leaves ends its requests at the engine;
- a request is checked whole, and its documents are read, before anything is asked; what is refused has asked nothing;
- uploads belong to the key that sent them: to any other key they are not there;
- every error is OpenAI's object, in a stream too, where it is the last event; none shows a key or a stack. So OpenAI's
  clients raise the error that they have for it::

    400 BadRequestError, 401 AuthenticationError, 403 PermissionDeniedError, 404 NotFoundError, 429 RateLimitError,
    413 APIStatusError, 5xx InternalServerError
    {"error": {"message": "n: not supported by an agent", "type": "invalid_request_error", "param": "n", "code": null}}

Without keys only this machine is answered, by its own name: a page in a browser whose name points here (DNS rebinding)
is refused, as are pages of origins that are not allowed.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, FastAPI, Form, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pebble import ProcessPool
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_fastapi_instrumentator import Instrumentator
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException

from ..agents.records import FailureKind
from ..data.documents import DocumentError, read_document
from ..system.errors import MemAgentError
from ..system.server_url import is_loopback
from .reader import AskingReader
from .schema import ChatRequest, Document, conversation
from .steps import ABORTED, TOO_LONG, Answered, Delta, Failed, Started, Step, TurnDone

log = logging.getLogger(__name__)
T = TypeVar("T")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]

PARSE_S = 60.0
"""Seconds for the text of one file."""
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_STATUS = {
    TOO_LONG: 413, ABORTED: 503, FailureKind.TIMEOUT: 504, FailureKind.CONNECTION: 503, FailureKind.SERVER_ERROR: 503,
    FailureKind.RATE_LIMITED: 503, FailureKind.REJECTED: 502, FailureKind.BAD_RESPONSE: 502, FailureKind.INTERNAL: 500,
}  # fmt: skip
"""Of a failed reading; all other kinds are the request's own fault, 400."""


class ApiError(MemAgentError):
    """One request is refused, or cannot be answered."""

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.status, self.headers = status, headers
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_of(failed: Failed) -> ApiError:
    status = _STATUS.get(failed.kind, 400)
    # OpenAI's clients try most failures again; a reading that took its whole time would take it again.
    headers = {"x-should-retry": "false"} if status == 504 else None
    return ApiError(status, failed.message, failed.kind, headers=headers)


@dataclass
class Service:
    """The model with all that its requests share."""

    reader: AskingReader
    name: str
    """Of the model."""
    healthy: Callable[[], Awaitable[bool]]
    keys: tuple[str, ...] = field(default=(), repr=False)
    origins: tuple[str, ...] = ()
    """Of web pages that may ask; ``*``: of any."""
    concurrency: int = 64
    """Documents that are read at once; further requests get 429 and when to come back."""
    timeout: float = 600.0
    """Seconds for one request; 0: no limit."""
    document_tokens: int = 1_000_000
    """Of all documents of a request; longer ones are refused, never cut; 0: no limit."""

    def __post_init__(self) -> None:
        self.reading, self._last_s = 0, 1.0
        self._files: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        """Object and text of each upload, by the number of the key that sent it and its id."""
        self._model = Model(id=self.name, object="model", created=int(time.time()), owned_by="mem_agent")
        self._pool = ProcessPool(len(os.sched_getaffinity(0)), context=get_context("forkserver"))
        self._registry = CollectorRegistry()
        named: dict[str, Any] = {"namespace": "mem_agent", "registry": self._registry}
        Gauge("reading", "Documents that are being read", **named).set_function(lambda: self.reading)
        self._turns = Counter("turns", "Turns that were sampled", ["kind"], **named)
        self._tokens = Counter("tokens", "Tokens of prompts and replies", ["of"], **named)
        self._failures = Counter("failures", "Readings that failed", ["kind"], **named)

    def app(self) -> FastAPI:
        app = FastAPI(openapi_url=None, lifespan=self._lifespan)
        key = [Depends(self._check_client)]
        v1 = APIRouter(prefix="/v1", dependencies=key)
        v1.add_api_route("/chat/completions", self.chat, methods=["POST"], response_model=None)
        v1.add_api_route("/models", self.models)
        v1.add_api_route("/models/{id:path}", self.model)
        v1.add_api_route("/files", self.upload, methods=["POST"])
        v1.add_api_route("/files", self.list_files)
        v1.add_api_route("/files/{id}", self.delete_file, methods=["DELETE"])
        app.include_router(v1)
        app.add_api_route("/health", self.health)
        metrics = Instrumentator(should_group_status_codes=False, registry=self._registry)
        metrics.instrument(app, metric_namespace="mem_agent").expose(app, dependencies=key)
        app.add_middleware(CORSMiddleware, allow_origins=self.origins, allow_methods=["*"], allow_headers=["*"])
        for kind in (ApiError, RequestValidationError, HTTPException, Exception):
            app.add_exception_handler(kind, _error_response)
        return app

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        yield
        self._pool.stop()
        await asyncio.to_thread(self._pool.join)

    def _check_client(self, request: Request, given: Bearer) -> None:
        """Sets ``request.state.client`` to the number of the client's key. Raises ApiError."""
        host = request.url.hostname or ""
        if not self.keys and not is_loopback(host):
            reason = f"the host {host} is not this machine; use a key to be reached by that name"
            raise ApiError(403, reason, "host_not_allowed")
        credentials = given.credentials.encode() if given else b""
        matches = [secrets.compare_digest(credentials, key.encode()) for key in self.keys]
        if self.keys and not any(matches):
            raise ApiError(401, "the key is missing or wrong; send Authorization: Bearer KEY", "invalid_api_key")
        request.state.client = matches.index(True) if matches else 0

    # --- asking -----------------------------------------------------------------------------------------------------

    async def chat(self, body: ChatRequest, request: Request) -> dict[str, Any] | EventSourceResponse:
        reply = ChatReply(self.name)
        steps = self._steps(body, request.state.client)
        if not body.stream:
            return await _unless_left(request, _whole(steps, reply))
        # Until the first step an error is an ordinary one.
        first = await _unless_left(request, anext(steps))
        return EventSourceResponse(_events(first, steps, reply, body.stream_options.include_usage), ping=15)

    async def _steps(self, body: ChatRequest, client: int) -> AsyncGenerator[Step, None]:
        """Those of one reading, counted. Raises ApiError."""
        await self.model(body.model or self.name)
        with self._place():
            said, document = await conversation(
                body, self.reader.is_long, lambda document: self._text_of(document, client))
            options = body.options(self.document_tokens, self.timeout)
            async with aclosing(self.reader.read(said, document, options)) as steps:
                async for step in steps:
                    self._count(step)
                    if isinstance(step, Failed):
                        raise error_of(step)
                    yield step

    @contextmanager
    def _place(self) -> Iterator[None]:
        """One among ``concurrency`` readings. Raises ApiError where there is none."""
        if self.reading >= self.concurrency:
            wait = str(round(min(60, max(1, self._last_s))))
            raise ApiError(429, f"{self.reading} documents are being read (--concurrency); try again later",
                           "too_many_requests", headers={"Retry-After": wait})
        self.reading, began = self.reading + 1, time.monotonic()
        try:
            yield
        finally:
            self.reading, self._last_s = self.reading - 1, time.monotonic() - began

    def _count(self, step: Step) -> None:
        if isinstance(step, TurnDone):
            self._turns.labels(step.kind).inc()
            self._tokens.labels("prompts").inc(step.prompt_tokens)
            self._tokens.labels("replies").inc(step.reply_tokens)
            self._tokens.labels("cached").inc(step.cached_tokens or 0)
        elif isinstance(step, Failed):
            self._failures.labels(step.kind).inc()

    # --- documents --------------------------------------------------------------------------------------------------

    async def _text_of(self, document: Document, client: int) -> str:
        if document.file_id:
            return self._file(client, document.file_id)[1]
        if not document.file_data:
            return f"{document.title}\n{document.text}" if document.title else document.text
        try:
            content = base64.b64decode(document.file_data.rpartition(",")[2], validate=True)
        except ValueError:
            raise ApiError(400, f"{document.filename}: file_data is not base64", None, "file_data") from None
        return await self._parsed(document.filename, content)

    async def _parsed(self, name: str, content: bytes) -> str:
        """The text of a file, read in a process that ends with its time or with whoever waits for it."""
        future = self._pool.schedule(read_document, args=(name, content), timeout=PARSE_S)
        try:
            return (await asyncio.wrap_future(future)).text
        except DocumentError as error:
            raise ApiError(400, str(error), "unreadable_document") from None
        except TimeoutError:
            raise ApiError(400, f"{name}: not read within {PARSE_S:g} s", "unreadable_document") from None

    def _file(self, client: int, id: str) -> tuple[dict[str, Any], str]:
        if (client, id) not in self._files:
            raise ApiError(404, f"no file {id:.80}; files last as long as the server", "file_not_found")
        return self._files[client, id]

    async def upload(
        self, request: Request, file: UploadFile, purpose: Annotated[str, Form()] = "user_data"
    ) -> dict[str, Any]:
        name, content = file.filename or "file", await file.read()
        text = await _unless_left(request, self._parsed(name, content))
        id = f"file-{uuid.uuid4().hex}"
        stored = {"id": id, "object": "file", "bytes": len(content), "filename": name,
                  "created_at": int(time.time()), "purpose": purpose, "status": "processed"}
        self._files[request.state.client, id] = (stored, text)
        return stored

    async def list_files(self, request: Request) -> dict[str, Any]:
        own = [stored for (client, _), (stored, _) in self._files.items() if client == request.state.client]
        return {"object": "list", "data": own, "has_more": False}

    async def delete_file(self, id: str, request: Request) -> dict[str, Any]:
        self._file(request.state.client, id)
        del self._files[request.state.client, id]
        return {"id": id, "object": "file", "deleted": True}

    # --- model and state --------------------------------------------------------------------------------------------

    async def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [self._model]}

    async def model(self, id: str) -> Model:
        if id != self.name:
            raise ApiError(404, f"no model {id:.80}; there is {self.name}", "model_not_found")
        return self._model

    async def health(self) -> JSONResponse:
        well = await self.healthy()
        return JSONResponse({"status": "ok" if well else "the engines do not answer"}, 200 if well else 503)


async def _whole(steps: AsyncGenerator[Step, None], reply: ChatReply) -> dict[str, Any]:
    """The completion. Raises ApiError."""
    async with aclosing(steps):
        async for step in steps:
            reply.add(step)
    return reply.completion()


async def _events(
    first: Step, steps: AsyncGenerator[Step, None], reply: ChatReply, include_usage: bool
) -> AsyncIterator[str]:
    async with aclosing(steps):
        try:
            yield reply.chunk(reply.add(first))
            async for step in steps:
                if delta := reply.add(step):
                    yield reply.chunk(delta)
            for chunk in [*reply.last_chunks(include_usage), "[DONE]"]:
                yield chunk
        except Exception as error:  # the stream has begun: an ordinary error would stand in the middle of it
            if not isinstance(error, ApiError):
                log.exception("a stream failed")
            yield orjson.dumps((error if isinstance(error, ApiError) else _BUG).body).decode()


async def _unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled if the client leaves: FastAPI lets it run."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ApiError(499, "the client has left")
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


_BUG = ApiError(500, "the server failed; its log says why")


async def _error_response(request: Request, error: Exception) -> JSONResponse:
    match error:
        case RequestValidationError():
            first: Any = error.errors()[0]
            places = first["loc"][1:] if first["type"] != "json_invalid" else ()
            param = ".".join(map(str, places)) or first.get("ctx", {}).get("field")
            error = ApiError(400, f"{param or 'the body'}: {first['msg']}", None, param)
        case HTTPException():
            error = ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    shown = error if isinstance(error, ApiError) else _BUG
    return JSONResponse(shown.body, shown.status, shown.headers)


# --- in OpenAI's wording -------------------------------------------------------------------------------------------


class ChatReply:
    """Steps of one reading in OpenAI's wording: chunks of a stream, or one completion. ``add`` takes them in order.

    A memory after each turn is ``reasoning_content``, as other servers give the thinking of a model: chat clients show
    it folded, beside the answer. Deltas of a document of two sections::

        {"role": "assistant", "content": ""}
        {"reasoning_content": "[1/2] Ann has gold.\\n"}      {"reasoning_content": "[2/2] as before\\n"}
        {"content": "\\\\boxed{gold}"}      and last  finish_reason "stop", "mem_agent": {"sources": [...], ...}

    The last chunk, and a completion, have ``mem_agent`` besides what OpenAI has: the answer as the model's task reads
    it, the sections that it came from, each with its place in the document in characters, and what was read.
    """

    def __init__(self, model: str) -> None:
        self.head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self.started = Started((), 0)
        self.answered = Answered("", "", (), False, 0, 0, 0)
        self.reasoning = self.memory = ""
        self.memory_tokens = 0
        """Sampled in memory turns."""

    def add(self, step: Step) -> dict[str, str]:
        """What ``step`` adds to the message."""
        match step:
            case Started():
                self.started = step
                return {"role": "assistant", "content": ""}
            case TurnDone(kind="memory"):
                return {"reasoning_content": self._remembered(step)}
            case Delta():
                return {"content": step.text}
            case Answered():
                self.answered = step
        return {}

    def _remembered(self, turn: TurnDone) -> str:
        read = ",".join(str(number + 1) for number in turn.sections) or "merged"
        memory = "as before" if turn.memory == self.memory else turn.memory or "nothing"
        line = f"[{read}/{len(self.started.sections)}] {memory}\n"
        self.memory, self.memory_tokens = turn.memory, self.memory_tokens + turn.reply_tokens
        self.reasoning += line
        return line

    def chunk(self, delta: dict[str, str], finish_reason: str | None = None, **more: Any) -> str:
        """JSON."""
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        chunk = self.head | {"object": "chat.completion.chunk", "choices": choices} | more
        return ChatCompletionChunk.model_validate(chunk).model_dump_json(exclude_unset=True)

    def last_chunks(self, include_usage: bool) -> list[str]:
        end = self.chunk({}, self.finish_reason, mem_agent=self.about)
        return [end, self.chunk({}, choices=[], usage=self.usage)] if include_usage else [end]

    def completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.answered.text, "reasoning_content": self.reasoning}
        choices = [{"index": 0, "message": message, "finish_reason": self.finish_reason, "logprobs": None}]
        whole = {"object": "chat.completion", "choices": choices, "usage": self.usage, "mem_agent": self.about}
        return ChatCompletion.model_validate(self.head | whole).model_dump(exclude_unset=True)

    @property
    def finish_reason(self) -> str:
        return "length" if self.answered.cut else "stop"

    @property
    def usage(self) -> dict[str, Any]:
        """Of all turns: what was computed, a stop string's own tokens among them."""
        done = self.answered
        return {
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": done.reply_tokens,
            "total_tokens": done.prompt_tokens + done.reply_tokens,
            "prompt_tokens_details": {"cached_tokens": done.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.memory_tokens},
        }

    @property
    def about(self) -> dict[str, Any]:
        sections = self.started.sections
        found = [{"section": number, "start": sections[number].start, "end": sections[number].end}
                 for number in self.answered.sources]
        return {"answer": self.answered.answer, "memory": self.memory, "sources": found, "sections": len(sections),
                "document_tokens": self.started.document_tokens}
