"""A router with faults: speaks the vLLM and the SGLang dialect, plays a script, remembers what it was asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeRouter:
    """``script[i]`` answers request i: a list of token ids, an HTTP status, ``hang``, ``drop``, or a JSON object.

    After the script, ``default`` answers. ``peak`` is the most requests ever in flight at once.
    """

    script: list[Any] = field(default_factory=list)
    default: Any = None
    delay: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    peak: int = 0
    port: int = 0
    _now: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self._now += 1
        self.peak = max(self.peak, self._now)
        try:
            return await self._answer(request)
        finally:
            self._now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        number = len(self.requests)
        self.requests.append(body)
        self.headers.append(request.headers)
        await asyncio.sleep(self.delay)
        step = self.script[number] if number < len(self.script) else self.default
        if callable(step):
            step = step(body)
        if step == "hang":
            await asyncio.sleep(30)
        if step == "drop":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if step == "garbage":
            return web.Response(body=b'{"choices": [')
        if isinstance(step, int):
            return web.json_response({"error": {"message": f"status {step}"}}, status=step)
        if isinstance(step, dict):
            return web.json_response(step)
        make = vllm_answer if request.path.startswith("/inference") else sglang_answer
        return web.json_response(make(step))


def vllm_answer(ids, log_prob=-0.5, finish="stop", version="v1", **choice) -> dict[str, Any]:
    content = [{"token_id": i, "logprob": log_prob, "top_logprobs": []} for i in ids]
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


def sglang_answer(ids, log_prob=-0.5, finish="stop", version="v1", **meta) -> dict[str, Any]:
    return {
        "text": "",
        "output_ids": list(ids),
        "meta_info": {
            "output_token_logprobs": [[log_prob, i, None] for i in ids],
            "finish_reason": {"type": finish},
            "weight_version": version,
            "cached_tokens": 2,
            **meta,
        },
    }


@asynccontextmanager
async def running(router: FakeRouter):
    """Serve ``router`` on a free loopback port; sets ``router.port``."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/inference/v1/generate", router.handle)
    app.router.add_post("/generate", router.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    router.port = site._server.sockets[0].getsockname()[1]
    try:
        yield router
    finally:
        await runner.cleanup()
