"""A worker that answers in the shape of SGLang's ``/generate``.

It names no model files, so that a router in front of it does not look for a tokenizer.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from mem_agent.tests.helpers.fake_router import log_probs_of

CONTEXT = 2048
"""Tokens; a prompt may have all but seven of them."""


@dataclass
class FakeWorker:
    """Samples ``reply``; the requests that ``held`` names by number wait to be aborted.

    With ``crowd``, which workers may share, no request is answered before that many are in flight. ``keys`` has the
    routing key of each request of ``requests``.
    """

    reply: list[int]
    held: tuple[int, ...] = ()
    crowd: asyncio.Barrier | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    port: int = 0
    _abort: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = len(self.requests)
        self.requests.append(body)
        self.keys.append(request.headers.get("X-SMG-Routing-Key"))
        if len(body["input_ids"]) > CONTEXT - 7:
            reason = f"longer than the model's context length ({CONTEXT} tokens)"
            return web.json_response({"error": {"message": reason}}, status=400)
        if number in self.held:
            await self._abort.wait()
            return web.json_response(self._answer(body, self.reply[:1], {"type": "abort", "message": "Aborted"}))
        if self.crowd:
            await self.crowd.wait()
        ids = self.reply[: body["sampling_params"].get("max_new_tokens") or 128]
        whole = ids == self.reply
        finish = {"type": "stop", "matched": ids[-1]} if whole else {"type": "length", "length": len(ids)}
        return web.json_response(self._answer(body, ids, finish))

    def _answer(self, body: dict[str, Any], ids: list[int], finish: dict[str, Any]) -> dict[str, Any]:
        log_probs = [[log_prob, token, None] for token, log_prob in zip(ids, log_probs_of(ids), strict=True)]
        meta = {
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": "3",
            "weight_versions": [{"version": "3", "start": 0, "end": len(ids)}],
            "input_token_logprobs": [],
            "output_token_logprobs": log_probs,
        }
        return {"text": "", "output_ids": ids, "meta_info": meta}

    async def abort(self, request: web.Request) -> web.Response:
        if (await request.json()).get("abort_all"):
            self._abort.set()
        return web.Response()

    async def describe(self, _: web.Request) -> web.Response:
        return web.json_response({"served_model_name": "fake", "is_generation": True})


@asynccontextmanager
async def working(worker: FakeWorker):
    """Serve ``worker`` on a free loopback port; sets ``worker.port``."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/generate", worker.generate)
    app.router.add_post("/abort_request", worker.abort)
    for path in ("/health", "/model_info", "/server_info"):
        app.router.add_get(path, worker.describe)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    worker.port = site._server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        await runner.cleanup()
