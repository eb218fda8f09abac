"""MemSifter without a model: what stands between a question's embedding and its prompts, and stage 1 at rest.

500 sessions of 2,000 tokens are pre-filtered to a ranker's 131,072 tokens, and the ten best of a ranking packed into a
chat model's 8,192, both rendered. Then stage 1 runs over many questions that share 20 histories, with hashed letters
in the place of a model: how much more memory it takes at most for ten times as many questions, and how long a second
run takes, which embeds nothing. MB are 10^6 bytes.

Last, stages 2 and 3 ask a stub whose replies take exponential times, as the requests of a window that is always full
would. The ideal is a simulation with the times that the stub drew: as soon as one of n requests is answered, the next
begins. Measured is from the first request that comes to the last reply, without Ray's start.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from aiohttp import web
from tokenizers import Tokenizer, models, pre_tokenizers

from ..config import Config
from ..hooks.chat_model import ChatSettings
from ..memsifter.answer import AnswerWorker
from ..memsifter.embed import EmbedCounts, embed_file
from ..memsifter.files import EMBED
from ..memsifter.rank import RankWorker, ranking_prompt
from ..memsifter.run_stage import Stage
from ..memsifter.vectors import TokenCounter
from ..rewards.intrinsic.encoder import HashingEncoder
from ..sessions.packing import by_score, pack
from ..sessions.ranking import completed
from ..sessions.records import HistoryQuestion, Session, Turn, row_of
from ..sessions.wording import load_wording, render_history
from .converter import forget_peak, resident
from .outcome import Outcome, timed

NAME = "sifter"
SESSIONS, TOKENS, QUESTIONS, HISTORIES = 500, 2_000, 10_000, 20
RANKER, CHAT, SHOWN = 131_072, 8_192, 10
PACK_MS, MORE_MB = 100.0, 50.0
WINDOWS, REQUESTS, OF_IDEAL = (64, 256), 6, 1.3
"""Requests in flight, how many of them follow each other, and how much longer than the ideal they may take."""
_A_SECOND = 64
"""Replies of the stub."""
_HERE = argparse.Namespace(ray="local", workers=1, gpus=0.0, batch_size=32, limit=None)
"""Options of a stage."""
_SHARED = 20
"""Sessions of a history that questions share."""


def measure(quick: bool = False, sessions: int = SESSIONS, questions: int = QUESTIONS) -> list[Outcome]:
    questions //= 10 if quick else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _tokenizer(folder / "tokenizer")
        found = [*packing(folder, sessions, 3 if quick else 10), *stage_1(folder, questions)]
        for in_flight in WINDOWS[:1] if quick else WINDOWS:
            found += windows(folder, in_flight, 1 if quick else REQUESTS)
        return found


def packing(folder: Path, sessions: int, rounds: int) -> list[Outcome]:
    asked = _question(0, sessions, TOKENS - 4, "history 0")  # tags and the date are 4
    draw = random.Random(0)
    similarities = [draw.random() for _ in asked.sessions]
    counter = TokenCounter(folder / "store", str(folder / "tokenizer"))
    tokens = counter.sessions(asked.sessions)
    ranking = draw.sample(range(sessions), min(SHOWN, sessions))

    def prefilter() -> str:
        shown = pack(by_score(similarities), tokens, RANKER).shown
        return render_history([asked.sessions[position] for position in shown])

    def chat() -> str:
        order = completed(ranking, by_score(similarities))[:SHOWN]
        return render_history([asked.sessions[n] for n in pack(order, tokens, CHAT).shown])

    prompt = partial(ranking_prompt, asked, by_score(similarities), tokens, limit=RANKER, wording=load_wording(),
                     count=counter.count)
    what = f"{sessions} sessions, {sum(tokens):,} tokens"
    both = [timed(lambda: (prefilter(), chat())) for _ in range(rounds)]
    counted = [timed(prompt) for _ in range(min(rounds, 3))]
    return [
        Outcome(NAME, f"{what}: pre-filter to {RANKER:,} tokens and packing into {CHAT:,}, rendered",
                tuple(sample.wall * 1e3 for sample in both), unit="ms", target=PACK_MS, at_most=True,
                samples={"call": both}),
        Outcome(NAME, f"{what}: the ranker's prompt, its tokens counted again", tuple(s.wall * 1e3 for s in counted),
                unit="ms", samples={"call": counted}, note="by a tokenizer of whole words"),
    ]


def stage_1(folder: Path, questions: int) -> list[Outcome]:
    few, many = folder / "few.parquet", folder / "many.parquet"
    for path, count in ((few, questions // 10), (many, questions)):
        _write(path, count)
    _embed(folder, few)
    forget_peak()
    _embed(folder, few, again="again")
    before = resident("VmHWM")
    forget_peak()
    first = timed(lambda: _embed(folder, many))
    more = (resident("VmHWM") - before) * 2**20 / 1e6
    found: list[EmbedCounts] = []
    second = timed(lambda: found.append(_embed(folder, many)))
    assert found[0].embedded == 0, f"a second run embeds {found[0].embedded} texts"
    what = f"stage 1, {questions:,} questions about {HISTORIES} histories"
    return [
        Outcome(NAME, f"{what}: memory above that of {questions // 10:,}", (more,), unit="MB", target=MORE_MB,
                at_most=True, note=f"{before * 2**20 / 1e6:,.0f} MB at most with {questions // 10:,}"),
        Outcome(NAME, what, (first.wall,), unit="s", samples={"call": [first]},
                note=f"{first.cpu:.1f} CPU seconds, hashed letters for a model"),
        Outcome(NAME, f"{what}, a second time", (second.wall,), unit="s", samples={"call": [second]},
                note=f"{second.cpu:.1f} CPU seconds; 0 texts embedded, {found[0].known:,} known"),
    ]


def _embed(folder: Path, source: Path, again: str = "") -> EmbedCounts:
    output = folder / f"{source.stem}{again}_embed.parquet"
    store = folder / "store" / source.stem
    return embed_file(HashingEncoder(), str(folder / "tokenizer"), store, source, output, _HERE)


def windows(folder: Path, in_flight: int, requests: int) -> list[Outcome]:
    """Both stages with ``in_flight`` requests, ``requests`` times as many questions."""
    source = folder / f"window{in_flight}.parquet"
    own = {"similarities": [0.5] * _SHARED, "session_tokens": [60] * _SHARED}
    rows = [row | own for row in _rows(in_flight * requests)]
    pq.write_table(pa.Table.from_pylist(rows), source)
    stub = Stub(in_flight / _A_SECOND)
    chat = ChatSettings(url=stub.url, model="stub", concurrency=in_flight)
    makers = {
        "stage 2": partial(RankWorker, chat, Config(mem_max_question=RANKER), folder / "tokenizer"),
        "stage 3": partial(AnswerWorker, chat, Config(), EMBED, SHOWN, CHAT),
    }
    found = []
    for name, make in makers.items():
        stage = Stage(source, folder / f"{name}{in_flight}.parquet", make.func.adds, {})
        said = stage.run(make, _HERE, in_flight)
        assert said == {"ok": len(rows)}, said
        ratio = stub.seconds / ideal(stub.waits, in_flight)
        what = f"{name}, {len(rows):,} requests, {in_flight} in flight: time against a full window"
        note = f"{stub.seconds:.1f} s, replies of {stub.mean_s:g} s on average"
        found.append(Outcome(NAME, what, (ratio,), target=OF_IDEAL, at_most=True, note=note))
        stub.forget()
    return found


def ideal(waits: list[float], in_flight: int) -> float:
    """Seconds until the last of these replies, where every request begins when another ends."""
    ends = [0.0] * in_flight
    for wait in waits:
        heapq.heappush(ends, heapq.heappop(ends) + wait)
    return max(ends)


class Stub:
    """A chat endpoint in a thread of its own."""

    def __init__(self, mean_s: float) -> None:
        self.mean_s, self._draw = mean_s, random.Random(0)
        self.forget()
        started = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True).start()
        started.wait()

    def forget(self) -> None:
        self.waits: list[float] = []
        self._began = self._ended = 0.0

    @property
    def seconds(self) -> float:
        return self._ended - self._began

    async def _serve(self, started: threading.Event) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await asyncio.Event().wait()

    async def _chat(self, request: web.Request) -> web.Response:
        self._began = self._began or time.monotonic()
        await request.read()
        wait = self._draw.expovariate(1 / self.mean_s)
        self.waits.append(wait)
        await asyncio.sleep(wait)
        self._ended = time.monotonic()
        message = {"role": "assistant", "content": "<ranking>0</ranking>"}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def _write(path: Path, questions: int) -> None:
    rows = _rows(questions)
    first = next(rows)
    schema = pa.Table.from_pylist([first]).schema
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        batch = [first]
        for row in rows:
            batch.append(row)
            if len(batch) == 64:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch = []
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def _rows(questions: int) -> Iterator[dict]:
    histories = [row_of(_question(0, _SHARED, 60, f"history {number}")) for number in range(HISTORIES)]
    for number in range(questions):
        shared = histories[number * HISTORIES // questions]
        yield shared | {"question_id": f"q{number}", "question": f"What was said in talk {number}?"}


def _question(number: int, sessions: int, words: int, seed: str) -> HistoryQuestion:
    draw = random.Random(seed)
    talks = tuple(
        Session(f"s{n}", tuple(Turn(role, _said(draw, words // 2)) for role in ("user", "assistant")), f"day {n}")
        for n in range(sessions)
    )
    return HistoryQuestion(f"q{number}", f"Which day, number {number}?", ("one",), talks, ("s0",))


def _said(draw: random.Random, words: int) -> str:
    return " ".join(f"w{number}" for number in draw.choices(range(5_000), k=words))


def _tokenizer(folder: Path) -> None:
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")

