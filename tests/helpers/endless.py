"""A server whose answers have no end, and what a client makes of it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from mem_agent.tests.helpers.fake_chat import completion
from mem_agent.tests.helpers.fake_router import vllm_answer

PIECE = 2**18
BOMB = gzip.compress(b" " * (64 * 2**20))
"""64 KiB on the wire, 64 MiB in memory."""


class Endless:
    """A server whose answers have no end, or unpack to 64 MiB; counts the pieces that it got rid of."""

    def __init__(self, kind: str, status: int = 200) -> None:
        self.kind, self.status, self.pieces, self.port = kind, status, 0, 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        if self.kind == "small":
            whole = vllm_answer([8]) | completion("yes")
            whole["choices"] = [vllm_answer([8])["choices"][0] | completion("yes")["choices"][0]]
            response = web.json_response(whole)
            response.enable_compression(web.ContentCoding.gzip)
            return response
        if self.kind == "bomb":
            return web.Response(body=BOMB, status=self.status, headers={"Content-Encoding": "gzip"})
        events = {"Content-Type": "text/event-stream"} if self.kind == "events" else {}
        response = web.StreamResponse(status=self.status, headers=events)
        await response.prepare(request)
        while True:
            self.pieces += 1
            await response.write(b": nothing\n" * (PIECE // 10))


def beside(server: Endless, ask: Callable[[str], Awaitable[Any]]) -> Any:
    """What ``ask`` gives or raises, of the server's address."""
    async def main() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            return await ask(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
        finally:
            await runner.cleanup()

    return asyncio.run(main())
