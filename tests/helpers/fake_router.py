"""A router with faults: speaks the dialects of vLLM, SGLang and OpenAI, plays a script, remembers what it was asked.

It also is its own only worker and takes the orders by which hosts end a rollout: an abort order answers every request
in flight as aborted; vLLM's (``/pause``) parks later requests until ``/resume``, SGLang's (``/abort_request``) serves
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer
from anyio.from_thread import start_blocking_portal


class Raw(NamedTuple):
    """An answer as it is."""

    body: bytes
    status: int = 200


@dataclass
class FakeRouter:
    """``script[i]`` answers request i: token ids, an HTTP status, ``hang``, ``drop``, a JSON object, or a Raw.

    ``abort`` is an aborted answer, ``hold`` one that only an abort order ends. After the script, ``default`` answers.
    Either may be a function of the request. ``aborted_at`` holds, for each abort order, the number of requests that
    had arrived before it; ``finished`` the routing keys that ended.
    """

    script: list[Any] = field(default_factory=list)
    default: Any = None
    delay: float = 0.0
    together: int = 0
    """So many requests have to be there before the first is answered."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    port: int = 0
    aborted_at: list[int] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    streams: bool = False
    """Whether it streams what it is asked to stream."""
    missing: tuple[str, ...] = ()
    """Paths that this server does not have."""
    key: str = ""
    """What the Authorization header has to hold, if anything; errors then repeat it."""
    models: tuple[dict[str, Any], ...] = ({"id": "served", "max_model_len": 4096},)
    in_flight: int = 0
    peak: int = 0
    """The most requests ever in flight at once."""
    _abort: asyncio.Event = field(default_factory=asyncio.Event)
    _going_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if not self.together:
            self._going_on.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def keys(self) -> list[str]:
        """The routing key of each request, under either dialect's name."""
        return [one.get("x-session-id") or one.get("X-SMG-Routing-Key") for one in self.headers]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization")
        if request.path in self.missing:
            return web.json_response({"detail": "Not Found"}, status=404)
        if self.key and given != f"Bearer {self.key}":
            return web.json_response({"error": {"message": f"wrong key {given}"}}, status=401)
        body, number = await request.json(), len(self.requests)
        self.requests.append(body)
        self.headers.append(request.headers)
        if len(self.requests) == self.together:
            self._going_on.set()
        await self._going_on.wait()
        step = "abort"
        if not await self._cut(self.delay):
            step = self.script[number] if number < len(self.script) else self.default
        if callable(step):
            step = step(body)
        if step == "abort" or (step == "hold" and await self._cut(None)):
            return web.json_response(ANSWERS[request.path]([5], finish="abort"))
        if step == "hang":
            await asyncio.Event().wait()
        if step == "drop":
            return drop(request, web.Response())
        if isinstance(step, int):
            repeated = f" for {given}" * bool(self.key)
            return web.json_response({"error": {"message": f"status {step}{repeated}"}}, status=step)
        if isinstance(step, Raw):
            return web.Response(body=step.body, status=step.status, content_type="application/json")
        if self.streams and body.get("stream"):
            return await self._streamed(request, step)
        return web.json_response(step if isinstance(step, dict) else ANSWERS[request.path](step))

    async def _streamed(self, request: web.Request, ids: list[int]) -> web.StreamResponse:
        """vLLM's events, one for each token; the connection is dropped where an id is -1."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        whole = vllm_answer([i for i in ids if i >= 0])
        content = whole["choices"][0]["logprobs"]["content"]
        for number, token_id in enumerate(ids):
            if token_id < 0:
                return drop(request, response)
            choice = {"token_ids": [token_id], "logprobs": {"content": [content[number]]},
                      "finish_reason": "stop" if number == len(ids) - 1 else None}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        await response.write(b"data: " + orjson.dumps({"choices": [], "usage": whole["usage"]}) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _cut(self, seconds: float | None) -> bool:
        """Wait; whether an abort order came before the time was over."""
        try:
            await asyncio.wait_for(self._abort.wait(), seconds)
        except TimeoutError:
            return False
        return True

    # --- orders -----------------------------------------------------------------------------------------------------

    async def describe(self, _: web.Request) -> web.Response:
        """What a host or a router asks of a worker; it names no files, so nobody looks for a tokenizer."""
        return web.json_response({
            "data": list(self.models), "workers": [{"url": self.url}], "served_model_name": "fake",
            "is_generation": True, "loads": [{"num_running_reqs": self.in_flight, "num_waiting_reqs": 0}],
        })

    async def finish(self, request: web.Request) -> web.Response:
        self.finished.append(request.query["session_id"])
        return web.json_response({})

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted_at.append(len(self.requests))
        self._abort.set()
        self._abort = asyncio.Event()
        if request.path == "/pause":
            self._going_on.clear()
        return web.json_response({})

    async def resume(self, _: web.Request) -> web.Response:
        self._going_on.set()
        return web.json_response({})


def drop(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return response


def log_probs_of(ids: Sequence[int]) -> list[float]:
    """Of a reply. Every token and every position has another one, so that none can stand in another's place."""
    return [-(position + 1) - token_id / 2**20 for position, token_id in enumerate(ids)]


def vllm_answer(ids, log_probs=None, finish="stop", version="v1", **choice) -> dict[str, Any]:
    content = [{"token_id": i, "logprob": p, "top_logprobs": []}
               for i, p in zip(ids, log_probs or log_probs_of(ids), strict=True)]
    spans = [{"version": version, "start": 0, "end": len(ids)}]
    whole = {"token_ids": list(ids), "logprobs": {"content": content}, "finish_reason": finish,
             "weight_versions": spans, **choice}
    return {"choices": [whole], "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}}


def sglang_answer(ids, log_probs=None, finish="stop", version="v1", **meta) -> dict[str, Any]:
    scored = [[p, i, None] for i, p in zip(ids, log_probs or log_probs_of(ids), strict=True)]
    whole = {"output_token_logprobs": scored, "finish_reason": {"type": finish}, "weight_version": version,
             "cached_tokens": 2, "prompt_tokens": 3, "completion_tokens": len(ids), **meta}
    return {"text": "", "output_ids": list(ids), "meta_info": whole}


def completion(text, finish="stop", **_) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish}]}


def chat_message(text, finish="stop", **_) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}]}


ANSWERS = {
    "/inference/v1/generate": vllm_answer,
    "/generate": sglang_answer,
    "/v1/completions": completion,
    "/v1/chat/completions": chat_message,
}


def chat_model(default: Any = "yes", models: Any = ({"id": "served"},), **more: Any) -> FakeRouter:
    """A chat server whose model, ``served``, does not say how long its context is."""
    return FakeRouter(default=default, models=models, **more)


@asynccontextmanager
async def running(router: FakeRouter):
    """Serve ``router`` on a free loopback port; sets ``router.port``."""
    app = web.Application(client_max_size=2**26)
    app.add_routes([web.post(path, router.handle) for path in ANSWERS])
    app.add_routes([web.post(path, router.abort) for path in ("/abort_request", "/pause")])
    app.add_routes([web.post("/resume", router.resume), web.post("/finish_session", router.finish)])
    for path in ("/v1/models", "/workers", "/v1/loads", "/health", "/model_info", "/server_info"):
        app.router.add_get(path, router.describe)
    server = TestServer(app, port=router.port or None)
    await server.start_server(shutdown_timeout=0.01)
    router.port = server.port
    try:
        yield router
    finally:
        await server.close()


@contextmanager
def running_beside(router: FakeRouter) -> Iterator[FakeRouter]:
    """``running`` in a thread, for code that keeps an event loop of its own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(running(router)):
        yield router
