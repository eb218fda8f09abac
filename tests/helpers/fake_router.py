"""A router with faults: speaks the dialects of vLLM, SGLang and OpenAI, plays a script, remembers what it was asked.

It also is its own only worker and takes the orders by which hosts end a rollout: an abort order answers every request
in flight as aborted; vLLM's (``/pause``) parks later requests until ``/resume``, SGLang's (``/abort_request``) serves
them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from mem_agent.tests.helpers.fake_chat import Raw
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


@dataclass
class FakeRouter:
    """``script[i]`` answers request i: token ids, an HTTP status, ``hang``, ``drop``, a JSON object, or a Raw.

    ``abort`` is an aborted answer, ``hold`` one that only an abort order ends. After the script, ``default`` answers.
    ``peak`` is the most requests ever in flight at once; ``aborted_at`` holds, for each abort order, the number of
    requests that had arrived before it; ``finished`` the routing keys that ended.
    """

    script: list[Any] = field(default_factory=list)
    default: Any = None
    delay: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    peak: int = 0
    port: int = 0
    aborted_at: list[int] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    together: int = 0
    """So many requests have to be there before the first is answered."""
    streams: bool = False
    """Whether it streams what it is asked to stream."""
    missing: tuple[str, ...] = ()
    """Paths that this server does not have."""
    key: str = ""
    """What the Authorization header has to hold, if anything; errors then repeat it."""
    models: tuple[dict[str, Any], ...] = ({"id": "served", "max_model_len": 4096},)
    _now: int = 0
    _abort: asyncio.Event = field(default_factory=asyncio.Event)
    _paused: bool = False
    _resumed: asyncio.Event = field(default_factory=asyncio.Event)
    _all_there: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.peak = max(self.peak, self._now)
        try:
            return await self._answer(request)
        finally:
            self._now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.missing:
            return web.json_response({"detail": "Not Found"}, status=404)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": f"wrong key {request.headers.get('Authorization')}"}, status=401)
        body = await request.json()
        number = len(self.requests)
        self.requests.append(body)
        self.headers.append(request.headers)
        if len(self.requests) >= self.together:
            self._all_there.set()
        await self._all_there.wait()
        if self._paused:
            await self._resumed.wait()
        make = ANSWERS[request.path]
        if await self._cut(self.delay):
            return web.json_response(make([5], finish="abort"))
        step = self.script[number] if number < len(self.script) else self.default
        if callable(step):
            step = step(body)
        if step == "abort" or (step == "hold" and await self._cut(None)):
            return web.json_response(make([5], finish="abort"))
        if step == "hang":
            await asyncio.Event().wait()
        if step == "drop":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if step == "garbage":
            return web.Response(body=b'{"choices": [')
        if isinstance(step, int):
            repeated = f" for {request.headers.get('Authorization')}" * bool(self.key)
            return web.json_response({"error": {"message": f"status {step}{repeated}"}}, status=step)
        if isinstance(step, Raw):
            return web.Response(body=step.body, status=step.status, headers=step.headers)
        if isinstance(step, dict):
            return web.json_response(step)
        if self.streams and body.get("stream"):
            return await self._streamed(request, step)
        return web.json_response(make(step))

    async def _streamed(self, request: web.Request, ids: list[int]) -> web.StreamResponse:
        """vLLM's events, one for each token; the connection is dropped where an id is -1."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        whole = vllm_answer([i for i in ids if i >= 0])
        content = whole["choices"][0]["logprobs"]["content"]
        for number, token_id in enumerate(ids):
            if token_id < 0:
                assert request.transport is not None
                request.transport.close()
                return response
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

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": list(self.models)})

    async def workers(self, request: web.Request) -> web.Response:
        return web.json_response({"workers": [{"url": f"http://127.0.0.1:{self.port}"}]})

    async def loads(self, request: web.Request) -> web.Response:
        return web.json_response({"loads": [{"num_running_reqs": self._now, "num_waiting_reqs": 0}]})

    async def finish(self, request: web.Request) -> web.Response:
        self.finished.append(request.query["session_id"])
        return web.json_response({}, status=404 if request.path in self.missing else 200)

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted_at.append(len(self.requests))
        self._abort.set()
        self._abort = asyncio.Event()
        self._paused = request.path == "/pause"
        return web.json_response({})

    async def resume(self, request: web.Request) -> web.Response:
        self._paused = False
        self._resumed.set()
        self._resumed = asyncio.Event()
        return web.json_response({})


def log_prob_of(token_id: int, position: int) -> float:
    """Another one for every token and every position of a reply, so that none can stand in another's place."""
    return -(position + 1) - token_id / 2**20


def log_probs_of(ids: Sequence[int]) -> list[float]:
    """Those of a reply, as both fakes give them."""
    return [log_prob_of(token_id, position) for position, token_id in enumerate(ids)]


def vllm_answer(ids, log_probs=None, finish="stop", version="v1", **choice) -> dict[str, Any]:
    content = [{"token_id": i, "logprob": p, "top_logprobs": []}
               for i, p in zip(ids, log_probs or log_probs_of(ids), strict=True)]
    return {
        "choices": [
            {
                "token_ids": list(ids),
                "logprobs": {"content": content},
                "finish_reason": finish,
                "weight_versions": [{"version": version, "start": 0, "end": len(ids)}],
                **choice,
            }
        ],
        "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    }


def sglang_answer(ids, log_probs=None, finish="stop", version="v1", **meta) -> dict[str, Any]:
    return {
        "text": "",
        "output_ids": list(ids),
        "meta_info": {
            "output_token_logprobs": [[p, i, None] for i, p in zip(ids, log_probs or log_probs_of(ids), strict=True)],
            "finish_reason": {"type": finish},
            "weight_version": version,
            "cached_tokens": 2,
            **meta,
        },
    }


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


@asynccontextmanager
async def running(router: FakeRouter):
    """Serve ``router`` on a free loopback port; sets ``router.port``."""
    app = web.Application(client_max_size=2**26)
    for path in ANSWERS:
        app.router.add_post(path, router.handle)
    app.router.add_get("/v1/models", router.list_models)
    app.router.add_get("/workers", router.workers)
    app.router.add_get("/v1/loads", router.loads)
    for path in ("/abort_request", "/pause"):
        app.router.add_post(path, router.abort)
    app.router.add_post("/resume", router.resume)
    app.router.add_post("/finish_session", router.finish)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", router.port)
    await site.start()
    router.port = site._server.sockets[0].getsockname()[1]
    try:
        yield router
    finally:
        await runner.cleanup()


@contextmanager
def running_beside(router: FakeRouter) -> Iterator[FakeRouter]:
    """``running`` in a thread, for code that keeps an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def finish(step: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(step, loop).result(HANGS_AFTER_S)

    server = running(router)
    finish(server.__aenter__())
    try:
        yield router
    finally:
        finish(server.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
