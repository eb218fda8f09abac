"""`mem-agent serve` in front of a server that answers two fixed tokens: what a turn costs, and how long others wait.

A turn: one document of 32 sections is read as a stream; CPU milliseconds of the endpoint's process for each turn, its
client of the engine included.

At once: 64 documents of as many sections, each another, as streams; how long ``/health`` takes at most meanwhile, and
wall seconds for all of them. Clients and stub share the machine with it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import subprocess
import threading
import time

import aiohttp
import orjson
import psutil
from aiohttp import web

from ..system.python_command import python_module
from .outcome import BenchmarkError, Outcome
from .trainer import POCKET

NAME = "endpoint"
SECTIONS, DOCUMENTS, ROUNDS = 32, 64, 3
READINGS = 10
"""Of the document in a round, since the kernel counts in steps of 10 ms."""
SETTINGS = {"MEM_CHUNK_TOKENS": "1024", "MEM_MAX_MEMORY": "256", "MEM_MAX_QUESTION": "64"}
LATENCY_S = 0.5
"""Of the stub's answers while all documents are read: a memory of 25 tokens, at the 50 a second that an engine gives
each of 64 sequences."""
WORDS = ("The", "key", "of", "Anna", "is", "red", "and", "a", "long", "history", "of", "rivers", "began", "in", "1871")


def measure(quick: bool = False) -> list[Outcome]:
    sections, documents = (SECTIONS // 8, DOCUMENTS // 4) if quick else (SECTIONS, DOCUMENTS)
    return asyncio.run(_measure(sections, documents))


async def _measure(sections: int, documents: int) -> list[Outcome]:
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
    with subprocess.Popen(command, env=os.environ | SETTINGS, stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = process.stdout.readline()
            if not ready.startswith("READY "):
                raise BenchmarkError("mem-agent serve did not start; its own lines above say why")
            url = ready.split()[1].removesuffix("/v1")
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                turn = await _turn(session, url, psutil.Process(process.pid), sections)
                latency_s = LATENCY_S
                return [turn, *await _at_once(session, url, documents, sections)]
        finally:
            process.terminate()


def serve_in_thread(*routes: web.RouteDef) -> str:
    """The URL of a server of these routes, in a thread that ends with the process."""
    url: queue.Queue[str] = queue.Queue()

    async def serve() -> None:
        app = web.Application(client_max_size=2**26)
        app.add_routes(routes)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        url.put(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    return url.get()


def document(seed: int, sections: int) -> str:
    """A little less than so many sections; the pocket tokenizer has a token for every letter of words it lacks."""
    return " ".join(random.Random(seed).choices(WORDS, k=sections * int(SETTINGS["MEM_CHUNK_TOKENS"]) // 4))


async def ask(session: aiohttp.ClientSession, url: str, text: str) -> int:
    """The sections of the document that was read."""
    body = {"messages": [{"role": "user", "content": "What is red?"}], "documents": [text], "stream": True}
    sections = 0
    async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
        async for line in answer.content:
            if b'"mem_agent"' in line:
                sections = orjson.loads(line[6:])["mem_agent"]["sections"]
            if b'"error"' in line:
                raise BenchmarkError(line.decode())
    return sections


async def _turn(session: aiohttp.ClientSession, url: str, process: psutil.Process, sections: int) -> Outcome:
    text, values = document(0, sections), []
    turns = await ask(session, url, text) + 1  # tokenised once, and connected
    for _ in range(ROUNDS):
        before = sum(process.cpu_times()[:2])
        for _ in range(READINGS):
            await ask(session, url, text)
        values.append(1000 * (sum(process.cpu_times()[:2]) - before) / READINGS / turns)
    return Outcome(NAME, "CPU of a turn", tuple(values), unit="ms", note=f"{turns} turns, one after the other")


async def _at_once(session: aiohttp.ClientSession, url: str, documents: int, sections: int) -> list[Outcome]:
    waits, seconds = [], []
    for first in range(0, ROUNDS * documents, documents):
        texts = [document(first + number + 1, sections) for number in range(documents)]
        began, longest = time.perf_counter(), 0.0
        reading = asyncio.gather(*(ask(session, url, text) for text in texts))
        while not reading.done():
            asked = time.perf_counter()
            async with session.get(f"{url}/health") as answer:
                await answer.read()
            longest = max(longest, 1000 * (time.perf_counter() - asked))
            await asyncio.sleep(0.01)
        waits.append(longest)
        seconds.append(time.perf_counter() - began)
        assert min(reading.result()) > sections // 2
    what = f"{documents} documents of {sections} sections at once"
    return [Outcome(NAME, f"{what}: /health at most", tuple(waits), unit="ms"),
            Outcome(NAME, what, tuple(seconds), unit="s")]
