"""MemSifter without a model: stage 1 at rest, and how full stages 2 and 3 keep their window of requests.

Stage 1 runs over many questions that share 20 histories, with hashed letters in the place of a model: how much more
memory it takes at most for ten times as many questions, and how long a second run takes, which embeds nothing. MB are
10^6 bytes.

Stages 2 and 3 ask a stub whose replies take exponential times, as the requests of a window that is always full would.
The ideal is a simulation with the times that the stub drew: as soon as one of n requests is answered, the next
begins. Measured is from the first request that comes to the last reply, without Ray's start.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from tokenizers import Tokenizer, models, pre_tokenizers

from ..config import Config
from ..hooks.chat_model import ChatSettings
from ..memsifter.answer import AnswerWorker
from ..memsifter.embed import embed_file
from ..memsifter.rank import RankWorker
from ..memsifter.stages import EMBED, Stage
from ..rewards.intrinsic.encoder import HashingEncoder
from ..rewards.sessions import HistoryQuestion, Session, Turn, row_of
from .converter import forget_peak, peak_memory
from .endpoint import serve_in_thread
from .outcome import Outcome, wall_seconds

NAME = "sifter"
QUESTIONS, HISTORIES, SESSIONS = 10_000, 20, 20
MORE_MB = 50.0
WINDOWS, REQUESTS, OF_IDEAL = (64, 256), 6, 1.3
"""Requests in flight, how many of them follow each other, and how much longer than the ideal they may take."""
A_SECOND = 64
"""Replies of the stub."""
RANKER, CHAT, SHOWN = 131_072, 8_192, 10
"""Tokens of the two prompts, and sessions in the chat model's."""
HERE = argparse.Namespace(ray="local", workers=1, gpus=0.0, limit=None)
"""Options of a stage."""


def measure(quick: bool = False, questions: int = QUESTIONS) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        (folder / "tokenizer").mkdir()
        tokenizer.save(str(folder / "tokenizer" / "tokenizer.json"))
        (folder / "tokenizer" / "config.json").write_text("{}")
        found = stage_1(folder, questions // (10 if quick else 1))
        for in_flight in WINDOWS[:1] if quick else WINDOWS:
            found += windows(folder, in_flight, 1 if quick else REQUESTS)
        return found


def stage_1(folder: Path, questions: int) -> list[Outcome]:
    few, many = folder / "few.parquet", folder / "many.parquet"
    for path, count in ((few, questions // 10), (many, questions)):
        rows = _rows(count)
        with pq.ParquetWriter(path, pa.Table.from_pylist([*islice(_rows(1), 1)]).schema) as writer:
            while block := list(islice(rows, 64)):
                writer.write_table(pa.Table.from_pylist(block))
    _embed(folder, few)
    before = peak_memory()
    forget_peak()
    first = wall_seconds(lambda: _embed(folder, many))
    more = (peak_memory() - before) / 1e6
    embedded: list[int] = []
    second = wall_seconds(lambda: embedded.append(_embed(folder, many)))
    what = f"stage 1, {questions:,} questions about {HISTORIES} histories"
    return [
        Outcome(NAME, f"{what}: memory above that of {questions // 10:,}", (more,), unit="MB", target=MORE_MB,
                at_most=True, note=f"{before / 1e6:,.0f} MB at most with {questions // 10:,}"),
        Outcome(NAME, what, (first,), unit="s", note="hashed letters for a model"),
        Outcome(NAME, f"{what}, a second time", (second,), unit="s",
                note=f"{embedded[0]} texts embedded"),
    ]


def _embed(folder: Path, source: Path) -> int:
    output, store = folder / f"{source.stem}_embed.parquet", folder / "store" / source.stem
    output.unlink(missing_ok=True)
    shutil.rmtree(f"{output}.parts", ignore_errors=True)  # a second time all are asked for, and found in the store
    return embed_file(HashingEncoder(), str(folder / "tokenizer"), store, source, output, HERE)[1]


def windows(folder: Path, in_flight: int, requests: int) -> list[Outcome]:
    """Both stages with ``in_flight`` requests, ``requests`` times as many questions."""
    source = folder / f"window{in_flight}.parquet"
    own = {"similarities": [0.5] * SESSIONS, "session_tokens": [60] * SESSIONS}
    rows = [row | own for row in _rows(in_flight * requests)]
    pq.write_table(pa.Table.from_pylist(rows), source)
    draw, mean_s = random.Random(0), in_flight / A_SECOND
    replies: list[tuple[float, float, float]] = []

    async def chat(request: web.Request) -> web.Response:
        began, wait = time.monotonic(), draw.expovariate(1 / mean_s)
        await request.read()
        await asyncio.sleep(wait)
        replies.append((began, wait, time.monotonic()))
        message = {"role": "assistant", "content": "<ranking>0</ranking>"}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    url = serve_in_thread(web.post("/v1/chat/completions", chat))
    settings = ChatSettings(url=url, model="stub", concurrency=in_flight)
    found = []
    for name, make in {
        "stage 2": partial(RankWorker, settings, Config(mem_max_question=RANKER), folder / "tokenizer"),
        "stage 3": partial(AnswerWorker, settings, Config(), EMBED, SHOWN, CHAT),
    }.items():
        said = Stage(source, folder / f"{name}{in_flight}.parquet", make.func.adds, {}).run(make, HERE, in_flight)
        assert said == {"ok": len(rows)}, said
        replies.sort()
        seconds = max(ended for *_, ended in replies) - replies[0][0]
        found.append(Outcome(
            NAME, f"{name}, {len(rows):,} requests, {in_flight} in flight: time against a full window",
            (seconds / ideal([wait for _, wait, _ in replies], in_flight),), target=OF_IDEAL, at_most=True,
            note=f"{seconds:.1f} s, replies of {mean_s:g} s on average"))
        replies.clear()
    return found


def ideal(waits: list[float], in_flight: int) -> float:
    """Seconds until the last of these replies, where every request begins when another ends."""
    ends = [0.0] * in_flight
    for wait in waits:
        heapq.heappush(ends, heapq.heappop(ends) + wait)
    return max(ends)


def _rows(questions: int) -> Iterator[dict]:
    histories = [row_of(_question(f"history {number}")) for number in range(HISTORIES)]
    for number in range(questions):
        shared = histories[number * HISTORIES // questions]
        yield shared | {"question_id": f"q{number}", "question": f"What was said in talk {number}?"}


def _question(seed: str) -> HistoryQuestion:
    draw = random.Random(seed)

    def said() -> str:
        return " ".join(f"w{number}" for number in draw.choices(range(5_000), k=30))

    talks = tuple(Session(f"s{number}", (Turn("user", said()), Turn("assistant", said())), f"day {number}")
                  for number in range(SESSIONS))
    return HistoryQuestion("q", "Which day?", ("one",), talks, ("s0",))
