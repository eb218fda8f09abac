"""MemSifter without a model: stage 1 at rest, and how full stages 2 and 3 keep their window of requests.

Stage 1 runs over many questions that share 20 histories, with hashed letters in the place of a model: how much more
memory it takes at most for ten times as many questions, and how long a second run takes, which embeds nothing. MB are
10^6 bytes.

Stages 2 and 3 ask a stub whose replies take exponential times, as the requests of a window that is always full would.
The ideal is a simulation with the times that the stub drew: as soon as one of n requests is answered, the next
begins. Measured is from the first request that comes to the last reply, without Ray's start.
"""

import argparse
import asyncio
import heapq
import random
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web

from ..config import Config
from ..hooks.chat_model import ChatSettings
from ..memsifter import embed
from ..memsifter.answer import AnswerWorker
from ..memsifter.rank import RankWorker
from ..memsifter.stages import EMBED, Stage
from ..rewards.sessions import HistoryQuestion, Session, Turn, row_of
from .endpoint import serve_in_thread
from .outcome import Outcome, seconds, seconds_and_peak
from .trainer import POCKET

QUESTIONS, HISTORIES, SESSIONS = 10_000, 20, 20
WINDOWS, REQUESTS, A_SECOND = (64, 256), 6, 64
"""Requests in flight, how many of them follow each other, and replies of the stub a second."""


def measure(quick: bool = False, questions: int = QUESTIONS) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as name:
        found = stage_1(Path(name), questions // (10 if quick else 1))
        for in_flight in WINDOWS[:1] if quick else WINDOWS:
            found += windows(Path(name), in_flight, 1 if quick else REQUESTS)
        return found


def stage_1(folder: Path, questions: int) -> list[Outcome]:
    def embed_all(data: str, output: str = "out") -> None:
        code = embed.main([
            "--data-dir", str(folder), "--datasets", data, "--output-dir", f"{folder}/{output}", "--tokenizer",
            str(POCKET), "--embedding-model-name", "hashing", "--embed-store-path", str(folder)])
        assert code == 0, f"stage 1 ended with code {code}"

    for data, count in (("few", questions // 10), ("many", questions)):
        rows, path = _rows(count), folder / data / "test.parquet"
        path.parent.mkdir()
        with pq.ParquetWriter(path, pa.Table.from_pylist([*_rows(1)]).schema) as writer:
            while block := list(islice(rows, 64)):
                writer.write_table(pa.Table.from_pylist(block))
    _, before = seconds_and_peak(partial(embed_all, "few"))
    first, peak = seconds_and_peak(partial(embed_all, "many"))
    second = seconds(partial(embed_all, "many", "again"))  # which finds its texts in the store
    what = f"stage 1, {questions:,} questions about {HISTORIES} histories"
    return [
        Outcome(f"{what}: memory above that of {questions // 10:,}", ((peak - before) / 1e6,), "MB", 50.0, True),
        Outcome(what, (first,), "s", note="hashed letters for a model"),
        Outcome(f"{what}, a second time", (second,), "s", note="every text is in the store"),
    ]


def windows(folder: Path, in_flight: int, requests: int) -> list[Outcome]:
    """Both stages with ``in_flight`` requests, ``requests`` times as many questions."""
    source, draw, replies = folder / f"window{in_flight}.parquet", random.Random(0), list[tuple[float, float, float]]()
    own = {"similarities": [0.5] * SESSIONS, "session_tokens": [60] * SESSIONS}
    rows = [row | own for row in _rows(in_flight * requests)]
    pq.write_table(pa.Table.from_pylist(rows), source)

    async def chat(request: web.Request) -> web.Response:
        began, wait = time.monotonic(), draw.expovariate(A_SECOND / in_flight)
        await request.read()
        await asyncio.sleep(wait)
        replies.append((began, wait, time.monotonic()))
        message = {"role": "assistant", "content": "<ranking>0</ranking>"}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    url = serve_in_thread(web.post("/v1/chat/completions", chat))
    settings = ChatSettings(url=url, model="stub", concurrency=in_flight)
    found = []
    for name, make in {
        "stage 2": partial(RankWorker, settings, Config(mem_max_question=131_072), POCKET),
        "stage 3": partial(AnswerWorker, settings, Config(), EMBED, 10, 8_192),  # sessions, and tokens of the prompt
    }.items():
        stage = Stage(source, folder / f"{name}{in_flight}.parquet", make.func.adds, {})
        said = stage.run(make, argparse.Namespace(ray="local", workers=1), in_flight)
        assert said == {"ok": len(rows)}, said
        replies.sort()
        took = max(ended for *_, ended in replies) - replies[0][0]
        found.append(Outcome(
            f"{name}, {len(rows):,} requests, {in_flight} in flight: time against a full window",
            (took / ideal([wait for _, wait, _ in replies], in_flight),), "times", 1.3, True, f"{took:.1f} s"))
        replies.clear()
    return found


def ideal(waits: list[float], in_flight: int) -> float:
    """Seconds until the last of these replies, where every request begins when another ends."""
    ends = [0.0] * in_flight
    for wait in waits:
        heapq.heappush(ends, heapq.heappop(ends) + wait)
    return max(ends)


def _rows(questions: int) -> Iterator[dict]:
    """Questions that share HISTORIES of SESSIONS made-up talks, as data sets have them."""
    draw, histories = random.Random(0), []
    for _ in range(HISTORIES):
        said = [" ".join(f"w{number}" for number in draw.choices(range(5_000), k=30)) for _ in range(2 * SESSIONS)]
        talks = tuple(Session(f"s{at}", (Turn("user", said[2 * at]), Turn("assistant", said[2 * at + 1])), f"day {at}")
                      for at in range(SESSIONS))
        histories.append(row_of(HistoryQuestion("q", "Which day?", ("one",), talks, ("s0",))))
    for number in range(questions):
        shared = histories[number * HISTORIES // questions]
        yield shared | {"question_id": f"q{number}", "question": f"What was said in talk {number}?"}
