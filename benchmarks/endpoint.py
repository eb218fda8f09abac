"""`mem-agent serve` in front of a server that answers two fixed tokens: what a turn costs, and how long others wait.

A turn: one document of 32 sections is read as a stream; CPU milliseconds of the endpoint's process for each turn, its
client of the engine included.

At once: 64 documents of as many sections, each another, as streams; how long ``/health`` takes at most meanwhile, and
wall seconds for all of them. Clients and stub share the machine with it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import orjson
import psutil
from aiohttp import web

from ..system.ports import free_ports
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


@contextmanager
def stub_engine(latency_s: float) -> Iterator[str]:
    """The URL of a server that answers every request with two fixed tokens, in a process of its own."""
    (port,) = free_ports(1)
    process = multiprocessing.get_context("spawn").Process(target=_answer, args=(latency_s, port))
    process.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.join()


def _answer(latency_s: float, port: int) -> None:
    content = [{"token_id": token, "logprob": -0.5} for token in (5, 6)]
    choice = {"token_ids": [5, 6], "logprobs": {"content": content}, "finish_reason": "stop"}

    async def answer(request: web.Request) -> web.Response:
        began = time.monotonic()
        await request.read()
        await asyncio.sleep(began + latency_s - time.monotonic())
        return web.json_response({"choices": [choice]})

    async def healthy(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(client_max_size=2**26)
    app.add_routes([web.post("/inference/v1/generate", answer), web.get("/health", healthy)])
    web.run_app(app, host="127.0.0.1", port=port, backlog=1024, print=None)


@contextmanager
def endpoint(engine_url: str) -> Iterator[tuple[str, psutil.Process]]:
    """The URL of a `mem-agent serve`, and its process."""
    command = python_module("mem_agent", "serve", str(POCKET), "--port", "0", "--url", engine_url)
    with subprocess.Popen(command, env=os.environ | SETTINGS, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("READY "):
                raise BenchmarkError("mem-agent serve did not start; its own lines above say why")
            yield line.split()[1].removesuffix("/v1"), psutil.Process(process.pid)
        finally:
            process.terminate()


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


def measure(quick: bool = False) -> list[Outcome]:
    sections, documents = (SECTIONS // 8, DOCUMENTS // 4) if quick else (SECTIONS, DOCUMENTS)
    with stub_engine(0.0) as engine, endpoint(engine) as (url, process):
        lines = [asyncio.run(_turn(url, process, sections))]
    with stub_engine(LATENCY_S) as engine, endpoint(engine) as (url, _):
        return lines + asyncio.run(_at_once(url, documents, sections))


async def _turn(url: str, process: psutil.Process, sections: int) -> Outcome:
    text, values = document(0, sections), []
    async with aiohttp.ClientSession() as session:
        turns = await ask(session, url, text) + 1  # tokenised once, and connected
        for _ in range(ROUNDS):
            before = process.cpu_times()
            for _ in range(READINGS):
                await ask(session, url, text)
            after = process.cpu_times()
            values.append(1000 * (after.user + after.system - before.user - before.system) / READINGS / turns)
    return Outcome(NAME, "CPU of a turn", tuple(values), unit="ms", note=f"{turns} turns, one after the other")


async def _at_once(url: str, documents: int, sections: int) -> list[Outcome]:
    waits, seconds = [], []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for first in range(0, ROUNDS * documents, documents):
            texts = [document(first + number + 1, sections) for number in range(documents)]
            began = time.perf_counter()
            reading = asyncio.gather(*(ask(session, url, text) for text in texts))
            waits.append(await _longest_wait(session, url, reading))
            seconds.append(time.perf_counter() - began)
            assert min(reading.result()) > sections // 2
    what = f"{documents} documents of {sections} sections at once"
    return [Outcome(NAME, f"{what}: /health at most", tuple(waits), unit="ms"),
            Outcome(NAME, what, tuple(seconds), unit="s")]


async def _longest_wait(session: aiohttp.ClientSession, url: str, reading: asyncio.Future[list[int]]) -> float:
    """Milliseconds."""
    longest = 0.0
    while not reading.done():
        began = time.perf_counter()
        async with session.get(f"{url}/health") as answer:
            await answer.read()
        longest = max(longest, 1000 * (time.perf_counter() - began))
        await asyncio.sleep(0.01)
    return longest

