"""``python -m mem_agent.benchmarks.chat_stub SECONDS``: a chat model that waits so long and then says ``red``.

It prints its address and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

_ANSWER = (b'{"id":"1","object":"chat.completion","created":1,"model":"stub","choices":[{"index":0,"finish_reason":'
           b'"stop","message":{"role":"assistant","content":"<answer>red</answer>"}}]}')


async def serve(latency_s: float) -> None:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(latency_s)
        return web.Response(body=_ANSWER, content_type="application/json")

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
