"""An OpenAI-compatible endpoint whose model is a memory agent: paths, limits and streams.

==========================  =========================================================================
POST /v1/chat/completions   documents in, answer out; ``stream`` tells the memory as it grows
POST /v1/completions        the same for a prompt as text
POST, GET /v1/files         documents to be named by id in messages; GET, DELETE /v1/files/ID
GET /v1/models              the one model
GET /health, /metrics       whether its engines answer; Prometheus
==========================  =========================================================================

Invariants:
- a client that leaves ends its requests at the engine (aiohttp cancels the handler, that closes the reader);
- a request is checked whole, and its documents are read, before anything is asked; what is refused has asked nothing;
- every error is OpenAI's object, in a stream too, where it is the last event; none shows a key or a stack.
"""

from __future__ import annotations

import atexit
import gc
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from ..system.gather import gather_or_cancel
from .access import Access, Admission
from .chat_reply import ChatReply
from .chat_request import AskedOptions, ChatRequest, MessageReader
from .completion import CompletionReply, prompts_of
from .document_texts import DocumentTexts
from .event_stream import DONE, event, events, with_pauses
from .files import Files
from .metrics import CONTENT_TYPE, Metrics
from .reader import AskingReader
from .request_error import RequestError, error_of, shown
from .steps import Failed, Limits, Started, Step, TurnDone

log = logging.getLogger(__name__)

PAUSE_S = 15.0
"""After so long without a word a stream has a comment, so that nobody on the way takes it for dead."""
BODY_BYTES = 2**28
"""Of a request, uploads among them."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Endpoint:
    """The model with all that its requests share."""

    reader: AskingReader
    name: str
    """Of the model."""
    access: Access
    healthy: Callable[[], Awaitable[bool]]
    concurrency: int = 64
    """Documents that are read at once; further requests get 429 and when to come back."""
    timeout: float = 600.0
    """Seconds for one request; 0: no limit."""
    document_tokens: int = 1_000_000
    """Of all documents of a request; longer ones are refused, never cut; 0: no limit."""
    metrics: Metrics = field(default_factory=Metrics)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.files = Files()
        self.admission = Admission(self.concurrency)
        self.uploads = Admission(self.concurrency)
        self.metrics.reading.set_function(lambda: self.admission.now)
        self._texts = DocumentTexts()
        self._messages = MessageReader(self.reader.is_long, self.files.text, self._texts.text)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[self._answered])
        app.on_cleanup.append(lambda _: self._texts.close())
        app.add_routes([
            web.post("/v1/chat/completions", self.chat),
            web.post("/v1/completions", self.completions),
            web.get("/v1/models", self.models),
            web.get("/v1/models/{id:.+}", self.model),
            web.post("/v1/files", self.upload),
            web.get("/v1/files", self.list_files),
            web.get("/v1/files/{id}", self.file),
            web.get("/v1/files/{id}/content", self.content),
            web.delete("/v1/files/{id}", self.delete_file),
            web.get("/health", self.health),
            web.get("/metrics", self.prometheus),
        ])
        return app

    # --- asking -----------------------------------------------------------------------------------------------------

    async def chat(self, request: web.Request) -> web.StreamResponse:
        with self.admission.reading():
            body = await self._body(request)
            asked = await self._messages.chat(body)
            reply = ChatReply(self.name)
            if asked.options.stream:
                return await self._stream(request, asked, reply)
            await self._whole(asked, reply)
            return _json(reply.completion())

    async def completions(self, request: web.Request) -> web.StreamResponse:
        with self.admission.reading():
            body = await self._body(request)
            asked = await prompts_of(body, self._messages, self.admission.most)
            replies = [ChatReply(self.name) for _ in asked]
            with self.admission.reading(len(asked) - 1):  # side by side, so each has its own time
                await gather_or_cancel(*(self._whole(*one) for one in zip(asked, replies, strict=True)))
            return _json(CompletionReply(replies).completion())

    async def _whole(self, asked: ChatRequest, reply: ChatReply) -> None:
        """Raises RequestError."""
        async with aclosing(self._steps(asked)) as steps:
            async for step in steps:
                if isinstance(step, Failed):
                    raise error_of(step)
                reply.deltas(step)

    async def _stream(self, request: web.Request, asked: ChatRequest, reply: ChatReply) -> web.StreamResponse:
        """Server-sent events; until a document is found to be readable, an error is an ordinary one."""
        response: web.StreamResponse | None = None
        async with aclosing(self._steps(asked)) as steps, aclosing(with_pauses(steps, PAUSE_S)) as told:
            try:
                async for step in told:
                    if response is None and isinstance(step, Failed):
                        raise error_of(step)
                    if response is None:
                        response = await self._begun(request)
                    await response.write(events(step, reply))
            except Exception as error:
                if response is None or isinstance(error, ConnectionResetError):
                    raise
                log.exception("a stream failed")  # it has begun: another answer would stand in the middle of it
                await response.write(event(_BUG.body))
        assert response is not None, "a reading has steps"
        if reply.answered is not None:
            ends = [reply.last_chunk(), *([reply.usage_chunk()] if asked.options.include_usage else [])]
            await response.write(b"".join(map(event, ends)) + DONE)
        await response.write_eof()
        return response

    async def _begun(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers | self._cors(request))
        await response.prepare(request)
        return response

    async def _steps(self, asked: ChatRequest) -> AsyncGenerator[Step, None]:
        """The reading's, counted."""
        began, first, last = time.monotonic(), True, None
        try:
            reading = self.reader.read(
                asked.messages, asked.document, limits=self._limits(asked.options), seed=asked.options.seed,
                sampling=asked.options.sampling,
            )
            async with aclosing(reading) as steps:
                async for step in steps:
                    self.metrics.count(step)
                    if first and isinstance(step, TurnDone):
                        first = False
                        self.metrics.first_seconds.observe(time.monotonic() - began)
                    last = None if isinstance(step, Started | TurnDone) else step
                    yield step
        finally:
            self.metrics.ended(last, time.monotonic() - began)

    def _limits(self, options: AskedOptions) -> Limits:
        return Limits(self.document_tokens, self.timeout, options.answer_tokens, options.stop)

    async def _body(self, request: web.Request) -> Any:
        """Raises RequestError."""
        if request.content_type != "application/json":  # which a page cannot send without asking for its origin
            raise RequestError(415, f"Content-Type is {request.content_type}; expected application/json")
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise RequestError(400, f"the body is not JSON: {error}") from None
        model = body.get("model") if isinstance(body, dict) else None
        if isinstance(model, str) and model != self.name:
            raise RequestError(404, f"no model {shown(model)}; there is {self.name}", param="model",
                               code="model_not_found")
        return body

    # --- models and files -------------------------------------------------------------------------------------------

    @property
    def _model_object(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": self.created, "owned_by": "mem_agent"}

    async def models(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [self._model_object]})

    async def model(self, request: web.Request) -> web.Response:
        if request.match_info["id"] != self.name:
            raise RequestError(404, f"no model {request.match_info['id']!r:.200}; there is {self.name}",
                               code="model_not_found")
        return _json(self._model_object)

    async def upload(self, request: web.Request) -> web.Response:
        with self.uploads.reading():  # the body is in memory until a core is free to parse it
            if request.content_type != "multipart/form-data":
                raise RequestError(415, f"Content-Type is {request.content_type}; expected multipart/form-data")
            form = await request.post()
            file, purpose = form.get("file"), str(form.get("purpose") or "user_data")
            if not isinstance(file, web.FileField):
                raise RequestError(400, "file: expected a file", param="file")
            content = file.file.read()
            text = await self._texts.text(file.filename, content)
            return _json(self.files.add(file.filename, purpose, content, text).to_object())

    async def list_files(self, request: web.Request) -> web.Response:
        listed = [file.to_object() for file in self.files.all()]
        return _json({"object": "list", "data": listed, "has_more": False})

    async def file(self, request: web.Request) -> web.Response:
        return _json(self.files.get(request.match_info["id"]).to_object())

    async def content(self, request: web.Request) -> web.Response:
        return web.Response(text=self.files.text(request.match_info["id"]))

    async def delete_file(self, request: web.Request) -> web.Response:
        return _json(self.files.remove(request.match_info["id"]))

    # --- state ------------------------------------------------------------------------------------------------------

    async def health(self, request: web.Request) -> web.Response:
        well = await self.healthy()
        return _json({"status": "ok" if well else "the engines do not answer"}, 200 if well else 503)

    async def prometheus(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    # --- around every request ---------------------------------------------------------------------------------------

    @property
    def _answered(self) -> Any:
        @web.middleware
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await self._answer(request, handler)
            route = request.match_info.route.resource
            path = route.canonical if route else "other"
            self.metrics.requests.labels(path, str(response.status)).inc()
            if not response.prepared:
                response.headers.update(self._cors(request))
            return response

        return answered

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.method == "OPTIONS" and self.access.allows(request.headers.get("Origin", "")):
                return web.Response(status=204)
            self.access.check(request.path, request.headers)
            return await handler(request)
        except RequestError as error:
            return _json(error.body, error.status, error.headers)
        except web.HTTPException as error:
            told = RequestError(error.status, _SAID.get(error.status, error.reason))
            return _json(told.body, error.status)
        except ConnectionResetError:
            raise  # the client has left, and nobody reads what would be said
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            return _json(_BUG.body, 500)

    def _cors(self, request: web.Request) -> dict[str, str]:
        origin = request.headers.get("Origin", "")
        if not origin or not self.access.allows(origin):
            return {}
        return {
            "Access-Control-Allow-Origin": origin, "Vary": "Origin",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, *",
            "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
        }


_BUG = RequestError(500, "the server failed; its log says why")
_SAID = {404: "no such path; see /v1/chat/completions", 405: "not with this method",
         413: f"the body is larger than {BODY_BYTES} bytes"}


def spare_the_heap() -> None:
    """Call once all is loaded: what lives as long as the server is never looked through for garbage again, which would
    stop every stream for a quarter of a second. At the end of the process it is: libraries print a page about what of
    theirs is not released."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json", headers=headers)
