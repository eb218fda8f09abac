"""``python -m mem_agent.benchmarks.stub_engine SECONDS``: a server that answers every request with two fixed tokens.

It prints its port and serves until it is stopped.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
from aiohttp import web

from ..system.python_command import python_module

_IDS = [5, 6]


async def serve(latency_s: float) -> None:
    content = [{"token_id": i, "logprob": -0.5} for i in _IDS]
    choice = {"token_ids": _IDS, "logprobs": {"content": content}, "finish_reason": "stop"}
    body = orjson.dumps({"choices": [choice]})

    async def answer(request: web.Request) -> web.Response:
        began = time.monotonic()
        await request.read()
        await asyncio.sleep(began + latency_s - time.monotonic())
        return web.Response(body=body, content_type="application/json")

    async def healthy(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/inference/v1/generate", answer)
    app.router.add_get("/health", healthy)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def stub_engine(latency_s: float) -> Iterator[str]:
    """Its URL."""
    command = python_module("mem_agent.benchmarks.stub_engine", str(latency_s))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
