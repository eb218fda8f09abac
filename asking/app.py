"""An OpenAI-compatible endpoint whose model is a memory agent: paths, keys, limits and streams.

==========================  =========================================================================
POST /v1/chat/completions   documents in, answer out; ``stream`` tells the memory as it grows
POST /v1/files              documents to be named by id in messages; GET and DELETE /v1/files/ID, GET /v1/files
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
    {"error": {"message": "body.n: Input should be 1", "type": "invalid_request_error", "param": "n", "code": null}}

Without keys only this machine is answered, by its own name: a page in a browser whose name points here (DNS rebinding)
is refused, as are pages of origins that are not allowed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, FastAPI, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from openai.types import FileDeleted, FileObject
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_fastapi_instrumentator import Instrumentator
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException

from ..agents.records import FailureKind, TurnFailed
from ..data.documents import DocumentError, read_document
from ..system.concurrency import watched
from ..system.server_url import is_loopback
from .reader import AskingReader, Tell
from .schema import ChatRequest, Document, conversation
from .steps import Answered, Delta, Section, Started, Step, TurnDone

T = TypeVar("T")
Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]
_STATUS = {FailureKind.NO_QUESTION: 400, FailureKind.LONG_QUESTION: 400, FailureKind.BAD_MESSAGES: 400,
           FailureKind.LONG_PROMPT: 413, FailureKind.TIMEOUT: 504}  # fmt: skip
"""Of a failed reading; all other kinds are the engine's, 503."""


class Service:
    """The model with all that its requests share."""

    def __init__(
        self, reader: AskingReader, name: str, keys: Sequence[str] = (), origins: Sequence[str] = (),
        concurrency: int = 64, timeout: float = 600.0, document_tokens: int = 1_000_000,
    ) -> None:
        """
        Args:
            name: of the model.
            origins: of web pages that may ask; ``*``: of any.
            concurrency: documents that are read at once; further requests get 429.
            timeout: seconds for one reading; 0: no limit.
            document_tokens: of all documents of a request; longer ones are refused, never cut; 0: no limit.
        """
        self.reader, self.name, self.keys, self.origins = reader, name, keys, origins
        self.timeout, self.document_tokens = timeout, document_tokens
        self._places = asyncio.Semaphore(concurrency)
        self._files: dict[tuple[int, str], tuple[FileObject, str]] = {}
        """The text of each upload, by the number of the key that sent it and its id."""
        self._registry = CollectorRegistry()
        named: dict[str, Any] = {"namespace": "mem_agent", "registry": self._registry}
        self._reading = Gauge("reading", "Documents that are being read", **named)
        self._turns = Counter("turns", "Turns that were sampled", ["kind"], **named)
        self._tokens = Counter("tokens", "Tokens of prompts and replies", ["of"], **named)
        self._failures = Counter("failures", "Readings that failed", **named)

    def app(self) -> FastAPI:
        app, key = FastAPI(openapi_url=None), [Depends(self._check_client)]
        post: dict[str, Any] = {"methods": ["POST"], "dependencies": key}
        app.add_api_route("/v1/chat/completions", self.chat, **post, response_model=None)
        app.add_api_route("/v1/files", self.upload, **post)
        app.add_api_route("/v1/files", self.files, dependencies=key)
        app.add_api_route("/v1/files/{id}", self.file, dependencies=key)
        app.add_api_route("/v1/files/{id}", self.delete, methods=["DELETE"], dependencies=key)
        app.add_api_route("/v1/models", self.models, dependencies=key)
        app.add_api_route("/health", self.health)
        metrics = Instrumentator(should_group_status_codes=False, registry=self._registry)
        metrics.instrument(app, metric_namespace="mem_agent").expose(app, dependencies=key)
        app.add_middleware(CORSMiddleware, allow_origins=self.origins, allow_methods=["*"], allow_headers=["*"])
        for kind in (TurnFailed, TimeoutError, DocumentError, RequestValidationError, HTTPException, Exception):
            app.add_exception_handler(kind, _error_response)
        return app

    def _check_client(self, request: Request, given: Bearer) -> None:
        """Sets ``request.state.client`` to the number of the client's key."""
        host, credentials = request.url.hostname or "", given.credentials.encode() if given else b""
        matches = [secrets.compare_digest(credentials, key.encode()) for key in self.keys]
        if not (self.keys or is_loopback(host)):
            raise HTTPException(403, f"the host {host} is not this machine; use a key to be reached by that name")
        if self.keys and not any(matches):
            raise HTTPException(401, "the key is missing or wrong; send Authorization: Bearer KEY")
        request.state.client = matches.index(True) if matches else 0

    # --- asking -----------------------------------------------------------------------------------------------------

    async def chat(self, body: ChatRequest, request: Request) -> dict[str, Any] | EventSourceResponse:
        reply, client = ChatReply(self.name), request.state.client
        if not body.stream:
            return reply.completion(await _unless_left(request, self._read(body, client, reply.delta)))
        events = self._events(body, client, reply)
        await _unless_left(request, anext(events))
        return EventSourceResponse(events, ping=15)

    async def _events(self, body: ChatRequest, client: int, reply: ChatReply) -> AsyncGenerator[str, None]:
        """First an empty one, once the document is cut: until then an error is an ordinary one, later the last event.
        """
        deltas: asyncio.Queue[dict[str, str] | None] = asyncio.Queue()
        reading = asyncio.ensure_future(self._read(body, client, lambda step: deltas.put_nowait(reply.delta(step))))
        reading.add_done_callback(lambda _: deltas.put_nowait(None))
        begun = False
        try:
            while (delta := await deltas.get()) is not None:
                if not begun:
                    yield ""
                begun = True
                if delta:
                    yield reply.chunk(delta)
            for event in reply.last_chunks(await reading, body.stream_options.get("include_usage", False)):
                yield event
        except Exception as error:
            if begun:
                yield orjson.dumps(_described(error)[1]).decode()
            if not (begun and isinstance(error, (TurnFailed, TimeoutError))):
                raise  # a bug is logged
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _read(self, body: ChatRequest, client: int, tell: Tell) -> Answered:
        """One reading, counted."""
        if body.model not in ("", self.name):
            raise HTTPException(404, f"no model {body.model:.80}; there is {self.name}")
        if self._places.locked():
            raise HTTPException(429, "as many documents as --concurrency are being read", {"Retry-After": "2"})

        def told(step: Step) -> None:
            if isinstance(step, TurnDone):
                self._turns.labels(step.kind).inc()
                self._tokens.labels("prompts").inc(step.prompt_tokens)
                self._tokens.labels("replies").inc(step.reply_tokens)
                self._tokens.labels("cached").inc(step.cached_tokens or 0)
            tell(step)

        async with self._places, asyncio.timeout(self.timeout or None):
            with self._reading.track_inprogress(), self._failures.count_exceptions((TurnFailed, TimeoutError)):
                messages, document = await conversation(body, self.reader.is_long, partial(self._text_of, client))
                return await self.reader.read(
                    messages, document, told, document_tokens=self.document_tokens, **body.options())

    # --- documents --------------------------------------------------------------------------------------------------

    async def _text_of(self, client: int, document: str | Document) -> str:
        if isinstance(document, str):
            return document
        if document.file_id:
            return self._file(client, document.file_id)[1]
        if document.text:
            return f"{document.title}\n{document.text}".strip()
        if not document.file_data:
            raise HTTPException(400, "a document is a text, {title, text}, {file_id} or {file_data, filename}")
        return (await asyncio.to_thread(read_document, document.filename, document.file_data)).text

    def _file(self, client: int, id: str) -> tuple[FileObject, str]:
        """A client's own file with its text."""
        if (client, id) not in self._files:
            raise HTTPException(404, f"no file {id:.80}; files last as long as the server")
        return self._files[client, id]

    async def upload(self, request: Request, file: UploadFile) -> FileObject:
        name, content = file.filename or "file", await file.read()
        text = (await asyncio.to_thread(read_document, name, content)).text
        made = FileObject(id=f"file-{uuid.uuid4().hex}", object="file", bytes=len(content), filename=name,
                          created_at=int(time.time()), purpose="user_data", status="processed")
        self._files[request.state.client, made.id] = made, text
        return made

    async def files(self, request: Request) -> dict[str, Any]:
        own = [made for (client, _), (made, _) in self._files.items() if client == request.state.client]
        return {"object": "list", "data": own, "has_more": False}

    async def file(self, id: str, request: Request) -> FileObject:
        return self._file(request.state.client, id)[0]

    async def delete(self, id: str, request: Request) -> FileDeleted:
        self._file(request.state.client, id)
        del self._files[request.state.client, id]
        return FileDeleted(id=id, object="file", deleted=True)

    # --- model and state --------------------------------------------------------------------------------------------

    async def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": self.name, "object": "model", "created": 0, "owned_by": "local"}]}

    async def health(self) -> JSONResponse:
        well = await self.reader.healthy()
        return JSONResponse({"status": "ok" if well else "the engines do not answer"}, 200 if well else 503)


async def _unless_left(request: Request, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled if the client leaves: FastAPI lets it run."""
    async def look() -> None:
        if await request.is_disconnected():
            raise HTTPException(499, "the client has left")

    return await watched(work, look, every_s=0.2)


async def _error_response(request: Request, error: Exception) -> JSONResponse:
    status, body = _described(error)
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 504:  # OpenAI's clients would try again, and it would take its whole time again
        headers = {"x-should-retry": "false"}
    return JSONResponse(body, status, headers)


def _described(error: Exception) -> tuple[int, dict[str, Any]]:
    """Status and OpenAI's object."""
    status, message, code, param = 500, "the server failed; its log says why", None, None
    match error:
        case HTTPException():
            status, message = error.status_code, error.detail
        case TurnFailed():
            status, message, code = _STATUS.get(error.kind, 503), str(error), error.kind.value
        case TimeoutError():
            status, message, code = 504, "no answer within --timeout", "timeout"
        case DocumentError():
            status, message = 400, str(error)
        case RequestValidationError():
            first: Any = error.errors()[0]
            param = ".".join(map(str, first["loc"][1:])) or None
            status, message = 400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    kind = "invalid_request_error" if status < 500 else "server_error"
    return status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


# --- in OpenAI's wording -------------------------------------------------------------------------------------------


class ChatReply:
    """Steps of one reading in OpenAI's wording: chunks of a stream, or one completion. ``delta`` takes them in order.

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
        self.sections: tuple[Section, ...] = ()
        self.turns: list[TurnDone] = []
        self.reasoning = self.memory = ""

    def delta(self, step: Step) -> dict[str, str]:
        """What ``step`` adds to the message."""
        if isinstance(step, Started):
            self.sections = step.sections
            return {"role": "assistant", "content": ""}
        if isinstance(step, Delta):
            return {"content": step.text}
        assert isinstance(step, TurnDone), "memories are told when they are whole"
        self.turns.append(step)
        if step.kind != "memory":
            return {}
        read = step.sections[0] + 1 if step.sections else "merged"
        memory = "as before" if step.memory == self.memory else step.memory or "nothing"
        line = f"[{read}/{len(self.sections)}] {memory}\n"
        self.memory, self.reasoning = step.memory, self.reasoning + line
        return {"reasoning_content": line}

    def chunk(self, delta: dict[str, str], finish_reason: str | None = None, **more: Any) -> str:
        """JSON."""
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        return orjson.dumps(self.head | {"object": "chat.completion.chunk", "choices": choices} | more).decode()

    def last_chunks(self, answered: Answered, include_usage: bool) -> list[str]:
        end = self.chunk({}, answered.finish_reason, mem_agent=self.about(answered))
        return [end, *([self.chunk({}, choices=[], usage=self.usage())] if include_usage else []), "[DONE]"]

    def completion(self, answered: Answered) -> dict[str, Any]:
        message = {"role": "assistant", "content": answered.text, "reasoning_content": self.reasoning}
        choices = [{"index": 0, "message": message, "finish_reason": answered.finish_reason}]
        more = {"choices": choices, "usage": self.usage(), "mem_agent": self.about(answered)}
        return self.head | {"object": "chat.completion"} | more

    def usage(self) -> dict[str, Any]:
        """Of all turns: what was computed, a stop string's own tokens among them."""
        prompt, reply = sum(t.prompt_tokens for t in self.turns), sum(t.reply_tokens for t in self.turns)
        cached = sum(turn.cached_tokens or 0 for turn in self.turns)
        memory = sum(turn.reply_tokens for turn in self.turns if turn.kind == "memory")
        return {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens": reply, "completion_tokens_details": {"reasoning_tokens": memory},
                "total_tokens": prompt + reply}

    def about(self, answered: Answered) -> dict[str, Any]:
        found = [{"section": number} | asdict(self.sections[number]) for number in answered.sources]
        return {"answer": answered.answer, "memory": self.memory, "sources": found, "sections": len(self.sections)}
