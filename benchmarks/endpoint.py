"""What `mem-agent serve` adds to the engine's time, against a server that answers two fixed tokens.

Added: one document of 32 sections, read through the endpoint as a stream, against as many requests sent one after the
other by the client that the endpoint itself uses; the difference for each turn. Its target is 5 ms.

At once: 64 documents of as many sections, each another, as streams; how long the endpoint's event loop was away from
those who wait for it, at most. Its target is 50 ms. A sleeper on the loop measures it, each time it wakes. The clients
are a process of their own.

Both are CPU milliseconds, which other programs on the machine change little: of this process, and of its loop's
thread. What the clock says is in the notes.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median

import aiohttp
import orjson
from aiohttp import web

from ..asking.access import Access
from ..asking.endpoint import Endpoint, spare_the_heap
from ..asking.reader import AskingReader
from ..config import Config
from ..hooks.engine_api import Dialect
from ..hooks.engine_api import Endpoint as Engine
from ..rollout_client import client_for, close_clients
from .evaluation import WORDS, server
from .outcome import BenchmarkError, Outcome, print_alone
from .rows import POCKET

NAME = "endpoint"
SECTIONS, DOCUMENTS, ROUNDS = 32, 64, 3
CONFIG = Config(mem_chunk_tokens=1024, mem_max_memory=256, mem_max_question=64)
LATENCY = 0.5
"""Seconds of the server's answers while all documents are read: a memory of 25 tokens, at the 50 a second that an
engine gives each of 64 sequences. That all come back at one moment is the worst case.
"""
_SLEEP = 0.002


@asynccontextmanager
async def endpoint(engine_url: str) -> AsyncIterator[str]:
    async def healthy() -> bool:
        return True

    made = Endpoint(AskingReader(CONFIG, POCKET, engine_url), "bench", Access(), healthy)
    runner = web.AppRunner(made.app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    spare_the_heap()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await close_clients()


def document(seed: int, sections: int) -> str:
    """A little less than so many sections; the pocket tokenizer has a token for every letter of words it lacks."""
    words = random.Random(seed).choices(WORDS, k=sections * CONFIG.mem_chunk_tokens // 4)
    return " ".join(words)


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


class Clock:
    """Milliseconds of CPU and of the clock, from when it was made."""

    def __init__(self, cpu: Callable[[], float] = time.process_time) -> None:
        self._cpu = cpu
        self.cpu, self.wall = cpu(), time.perf_counter()

    def stop(self) -> None:
        self.cpu, self.wall = 1000 * (self._cpu() - self.cpu), 1000 * (time.perf_counter() - self.wall)


# --- what is added to a turn ----------------------------------------------------------------------------------------


async def added(sections: int) -> Outcome:
    text = document(0, sections)
    ids = list(range(5, 9)) * (CONFIG.mem_chunk_tokens // 4)
    cpu, wall = [], []
    with server(0.0) as url:
        async with endpoint(url) as here, aiohttp.ClientSession() as session:
            turns = await ask(session, here, text) + 1  # tokenised once, and connected
            client = client_for(Engine(Dialect.VLLM, url), CONFIG)
            for _ in range(ROUNDS):
                through = Clock()
                await ask(session, here, text)
                through.stop()
                alone = Clock()
                for _ in range(turns):
                    await client.generate(ids, 256, {"temperature": 1.0}, "bench")
                alone.stop()
                cpu.append((through.cpu - alone.cpu) / turns)
                wall.append((through.wall - alone.wall) / turns)
    return Outcome(NAME, "added to a turn", tuple(cpu), unit="ms", target=5, at_most=True,
                   note=f"{turns} turns, one after the other; by the clock {median(wall):.2f} ms; its client included")


# --- many at once ---------------------------------------------------------------------------------------------------


async def away(done: asyncio.Event) -> tuple[float, float]:
    """Milliseconds for which the loop was away at most until ``done``: of the CPU, and by the clock."""
    cpu = wall = 0.0
    while not done.is_set():
        slept = Clock(time.thread_time)
        await asyncio.sleep(_SLEEP)
        slept.stop()
        cpu, wall = max(cpu, slept.cpu), max(wall, slept.wall - 1000 * _SLEEP)
    return cpu, wall


async def at_once(documents: int, sections: int) -> Outcome:
    cpu, wall = [], []
    with server(LATENCY) as url:
        async with endpoint(url) as here:
            began = time.perf_counter()
            for first in range(ROUNDS):
                done = asyncio.Event()
                watch = asyncio.ensure_future(away(done))
                command = [sys.executable, "-m", f"{__package__}.endpoint", here, *map(str, (documents, sections))]
                clients = await asyncio.create_subprocess_exec(*command, str(first * documents))
                if await clients.wait() != 0:
                    raise BenchmarkError("the clients failed; their lines are above")
                done.set()
                busiest, longest = await watch
                cpu.append(busiest)
                wall.append(longest)
            seconds = (time.perf_counter() - began) / ROUNDS
    return Outcome(NAME, f"{documents} documents at once: the loop away at most", tuple(cpu), unit="ms", target=50,
                   at_most=True, note=f"{sections} sections each; by the clock {median(wall):.0f} ms; {seconds:.1f} s "
                   "a round, clients' start among them")


async def clients(url: str, documents: int, sections: int, first: int) -> None:
    texts = [document(first + number + 1, sections) for number in range(documents)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        read = await asyncio.gather(*(ask(session, url, text) for text in texts))
    assert min(read) > sections // 2, f"documents of {read} sections"


def measure(quick: bool = False) -> list[Outcome]:
    sections = SECTIONS // 8 if quick else SECTIONS
    return [asyncio.run(added(sections)), asyncio.run(at_once(DOCUMENTS // 4 if quick else DOCUMENTS, sections))]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(clients(sys.argv[1], *map(int, sys.argv[2:])))
    else:
        print_alone(measure)
