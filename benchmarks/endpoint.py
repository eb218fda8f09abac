"""`mem-agent serve` in front of a server that answers two fixed tokens: what a turn costs, and how long others wait.

A turn: one document of 32 sections is read as a stream; CPU milliseconds of the endpoint's process for each turn, its
client of the engine included.

At once: 64 documents of as many sections, each another, as streams; how long ``/health`` takes at most meanwhile.
Clients and stub share the machine with it.
"""

import asyncio
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Coroutine
from typing import Any

import aiohttp
import orjson
import psutil
from aiohttp import web

from ..system.cli import python_module
from .outcome import Outcome
from .trainer import POCKET

SECTIONS, DOCUMENTS, ROUNDS = 32, 64, 3
READINGS = 10
"""Of the document in a round, since the kernel counts in steps of 10 ms."""
SETTINGS = {"MEM_CHUNK_TOKENS": "1024", "MEM_MAX_MEMORY": "256", "MEM_MAX_QUESTION": "64"}
LATENCY_S = 0.5
"""Of the stub's answers while all documents are read: a memory of 25 tokens, at the 50 a second that an engine gives
each of 64 sequences."""
WORDS = ("The", "key", "of", "Anna", "is", "red", "and", "a", "long", "history", "of", "rivers", "began", "in", "1871")


async def measure(quick: bool = False) -> list[Outcome]:
    sections, documents = (SECTIONS // 8, DOCUMENTS // 4) if quick else (SECTIONS, DOCUMENTS)
    latency_s = 0.0

    async def generate(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(latency_s)
        content = [{"token_id": token, "logprob": -0.5} for token in (5, 6)]
        choice = {"token_ids": [5, 6], "logprobs": {"content": content}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    async def healthy(_: web.Request) -> web.Response:
        return web.Response()

    engine = serve_in_thread(web.post("/inference/v1/generate", generate), web.get("/health", healthy))
    command = python_module("mem_agent", "serve", str(POCKET), "--port", "0", "--url", engine)
    process = psutil.Popen(command, env=os.environ | SETTINGS, stdout=subprocess.PIPE, text=True)
    url = process.stdout.readline().split()[1].removesuffix("/v1")  # READY URL
    milliseconds, waits = [], []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        try:
            request = request_of(0, sections)
            turns = READINGS * (await ask(session, url, request) + 1)  # tokenised once, and connected
            for _ in range(ROUNDS):
                before = sum(process.cpu_times()[:2])  # user and system
                for _ in range(READINGS):
                    await ask(session, url, request)
                milliseconds.append(1000 * (sum(process.cpu_times()[:2]) - before) / turns)
            latency_s = LATENCY_S
            for number in range(ROUNDS):
                requests = [request_of(1 + number * documents + at, sections) for at in range(documents)]
                waits.append(1000 * await _longest(session, url, [ask(session, url, one) for one in requests]))
        finally:
            process.terminate()
    what = f"{documents} documents of {sections} sections at once: /health at most"
    return [Outcome("CPU of a turn", tuple(milliseconds), "ms", 5.0, True, f"{turns} turns, one after the other"),
            Outcome(what, tuple(waits), "ms", 50.0, True)]


def serve_in_thread(*routes: web.RouteDef) -> str:
    """The URL of a server of these routes, in a thread that ends with the process."""
    app = web.Application(client_max_size=2**26)
    app.add_routes(routes)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    options = {"sock": listening, "handle_signals": False, "print": None, "backlog": 1024}
    threading.Thread(target=web.run_app, args=(app,), kwargs=options, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def request_of(seed: int, sections: int) -> dict[str, Any]:
    """With a document of a little less than so many sections."""
    # The pocket tokenizer has a token for every letter of words it lacks.
    text = " ".join(random.Random(seed).choices(WORDS, k=sections * int(SETTINGS["MEM_CHUNK_TOKENS"]) // 4))
    return {"messages": [{"role": "user", "content": "What is red?"}], "documents": [text], "stream": True}


async def ask(session: aiohttp.ClientSession, url: str, request: dict[str, Any]) -> int:
    """Have its document read; the number of its sections."""
    async with session.post(f"{url}/v1/chat/completions", json=request) as answer:
        lines = [line async for line in answer.content if b'"mem_agent"' in line]
    return orjson.loads(lines[-1][6:])["mem_agent"]["sections"]


async def _longest(session: aiohttp.ClientSession, url: str, asking: list[Coroutine]) -> float:
    """The seconds that ``/health`` takes at most while all of these are answered."""
    reading, longest = asyncio.gather(*asking), 0.0
    while not reading.done():
        began = time.perf_counter()
        async with session.get(f"{url}/health") as answer:
            await answer.read()
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(0.01)
    await reading
    return longest
