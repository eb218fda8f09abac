"""What `mem-agent serve` adds to the engine's time, against a server that answers two fixed tokens.

Added: one document of 32 sections, read through the endpoint as a stream, against as many requests sent one after the
other by the client that the endpoint itself uses; the difference for each turn, in CPU milliseconds of this process.
Its target is 5 ms.

At once: 64 documents of as many sections, each another, as streams; how long the endpoint's event loop was away from
those who wait for it, at most. Its target is 50 ms. A sleeper on the loop measures it, each time it wakes: by the CPU
milliseconds of its thread, which other programs on the machine change little, and by the clock, from which the note
takes what the thread waited for a core. Clients and stub are processes of their own, on cores of their own where there
are four.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from statistics import median

import aiohttp
import orjson
from aiohttp import web

from ..asking.access import Access
from ..asking.endpoint import Endpoint, spare_the_heap
from ..asking.reader import AskingReader
from ..client.engine_api import Dialect
from ..client.engine_api import Endpoint as Engine
from ..client.rollout_client import client_for, close_clients
from ..config import Config
from ..system.python_command import python_module
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
_WAITED = Path("/proc/thread-self/schedstat")
"""Kernels without CONFIG_SCHED_INFO do not have it."""


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


@dataclass(frozen=True, slots=True)
class Away:
    """Milliseconds for which the loop was away at most."""

    cpu: float
    clock: float
    running: float
    """By the clock, without what its thread waited for a core; not a number where the kernel does not tell."""


async def away(done: asyncio.Event) -> Away:
    """Until ``done``."""
    cpu = clock = running = 0.0
    while not done.is_set():
        slept, waited = Clock(time.thread_time), waited_for_a_core()
        await asyncio.sleep(_SLEEP)
        slept.stop()
        late = slept.wall - 1000 * _SLEEP
        cpu, clock = max(cpu, slept.cpu), max(clock, late)
        running = max(late - waited_for_a_core() + waited, running)  # in this order nan stays
    return Away(cpu, clock, running)


def waited_for_a_core() -> float:
    """Milliseconds in which this thread could have run, and others did."""
    return int(_WAITED.read_text().split()[1]) / 1e6 if _WAITED.exists() else nan


def said_of(found: Sequence[Away], cores: int) -> str:
    running = median(one.running for one in found)
    without = f"{running:.0f} ms without the time" if isfinite(running) else f"no {_WAITED} tells the time"
    apart = "apart" if cores >= 4 else "beside it"
    return f"{without} in which it waited for one of {cores} cores; clients and stub {apart}"


@contextmanager
def others_apart() -> Iterator[None]:
    """What is started inside has all cores but two, and this process those two; all have all, of fewer than four."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 4:
        yield
        return
    os.sched_setaffinity(0, cores[2:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores[:2])


async def at_once(documents: int, sections: int) -> list[Outcome]:
    found = []
    cores = os.sched_getaffinity(0)
    with ExitStack() as running:
        with others_apart():
            url = running.enter_context(server(LATENCY))
        async with endpoint(url) as here:
            began = time.perf_counter()
            for first in range(ROUNDS):
                done = asyncio.Event()
                watch = asyncio.ensure_future(away(done))
                os.sched_setaffinity(0, cores)
                with others_apart():
                    command = python_module(f"{__package__}.endpoint", here, str(documents), str(sections))
                    clients = await asyncio.create_subprocess_exec(*command, str(first * documents))
                if await clients.wait() != 0:
                    raise BenchmarkError("the clients failed; their lines are above")
                done.set()
                found.append(await watch)
            seconds = (time.perf_counter() - began) / ROUNDS
    os.sched_setaffinity(0, cores)
    what = f"{documents} documents at once: the loop away at most"
    return [
        Outcome(NAME, what, tuple(one.cpu for one in found), unit="ms", target=50, at_most=True,
                note=f"{sections} sections each; {seconds:.1f} s a round, clients' start among them"),
        Outcome(NAME, f"{what}, by the clock", tuple(one.clock for one in found), unit="ms", target=50, at_most=True,
                note=said_of(found, len(cores))),
    ]


async def clients(url: str, documents: int, sections: int, first: int) -> None:
    texts = [document(first + number + 1, sections) for number in range(documents)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        read = await asyncio.gather(*(ask(session, url, text) for text in texts))
    assert min(read) > sections // 2, f"documents of {read} sections"


def measure(quick: bool = False) -> list[Outcome]:
    sections = SECTIONS // 8 if quick else SECTIONS
    return [asyncio.run(added(sections)), *asyncio.run(at_once(DOCUMENTS // 4 if quick else DOCUMENTS, sections))]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(clients(sys.argv[1], *map(int, sys.argv[2:])))
    else:
        print_alone(measure)
