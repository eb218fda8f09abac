"""A chat endpoint with faults, in OpenAI's wording: answers by a function of the request, and remembers them all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiohttp import web

from mem_agent.tests.helpers.patience import HANGS_AFTER_S


class Raw(NamedTuple):
    """An answer as it is."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


HANG = object()
"""Never answers."""


@dataclass
class FakeChat:
    """``answer(body, number)`` gives a reply's text, an HTTP status, a Raw or HANG for request ``number``."""

    answer: Callable[[dict[str, Any], int], Any] = lambda body, number: "yes"
    delay: float = 0.0
    together: int = 0
    """So many requests have to be there before the first is answered."""
    key: str = ""
    """What the Authorization header has to hold, if anything; refusals repeat it."""
    models: tuple[str, ...] = ("served",)
    max_model_len: int | None = None
    finish_reason: str = "stop"
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    peak: int = 0
    port: int = 0
    _now: int = 0
    _all_there: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body, number = await request.json(), len(self.bodies)
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        self._now += 1
        self.peak = max(self.peak, self._now)
        if number + 1 >= self.together:
            self._all_there.set()
        try:
            await self._all_there.wait()
            await asyncio.sleep(self.delay)
            return await self._answered(request.headers.get("Authorization", ""), body, number)
        finally:
            self._now -= 1

    async def _answered(self, given: str, body: dict[str, Any], number: int) -> web.StreamResponse:
        if self.key and given != f"Bearer {self.key}":
            return web.json_response({"error": {"message": f"wrong key {given}"}}, status=401)
        if body["model"] not in self.models:
            return web.json_response({"error": {"message": f"no model {body['model']}"}}, status=404)
        answer = self.answer(body, number)
        if answer is HANG:
            await asyncio.Event().wait()
        if isinstance(answer, Raw):
            return web.Response(body=answer.body, status=answer.status, content_type="application/json")
        if isinstance(answer, int):
            return web.json_response({"error": {"message": f"status {answer}"}}, status=answer)
        message = {"role": "assistant", "content": answer}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}]})

    async def list_models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name, "max_model_len": self.max_model_len} for name in self.models]})


@contextmanager
def chat_server(chat: FakeChat) -> Iterator[FakeChat]:
    """Serve in a thread of its own, so that any event loop or process can ask; sets ``chat.port``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/v1/chat/completions", chat.handle)
        app.router.add_get("/v1/models", chat.list_models)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", chat.port)
        await site.start()
        chat.port = site._server.sockets[0].getsockname()[1]
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(HANGS_AFTER_S)
    try:
        yield chat
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(HANGS_AFTER_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANGS_AFTER_S)
        loop.close()
