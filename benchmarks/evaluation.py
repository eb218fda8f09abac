"""The evaluation client alone, against a server that answers two fixed tokens.

Overhead: 256 questions about 8 documents, 256 requests in flight, each answered after LATENCY seconds: the share of
the answers' time in which they do not wait for the server. LATENCY is 10 seconds: a memory of 512 tokens at the 50
tokens a second that an engine gives each of 256 sequences. A fixed latency is the worst case, as all requests come
back at one moment and the last of them waits for all others.

Memory: the most that the client ever takes for one document of 900K tokens, read in chunks of 1024, start-up among it.

Rows: 100,000 rows of 12,500 questions: reading, means and intervals, and a comparison of two such runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import uvloop
from aiohttp import web
from tokenizers import Tokenizer

from ..config import Config
from ..evaluation import run as evaluation
from ..evaluation.results import Row, RowWriter, Run, read_rows, write_run
from ..evaluation.tables import comparison, tables
from ..system.python_command import python_module
from .outcome import BenchmarkError, Outcome, print_alone
from .rows import POCKET
from .stopwatch import Sample, timed

NAME = "evaluation"
LATENCY, IN_FLIGHT, QUESTIONS, CHUNKS = 10.0, 256, 256, 4
DOCUMENT_TOKENS = 900_000
AGENT = {"mem_chunk_tokens": 1024, "mem_max_memory": 256, "mem_max_question": 64, "mem_max_chunks": 100_000}
ROWS, SAMPLES = 100_000, 8
WORDS = ("The", "key", "of", "Anna", "is", "red", "and", "a", "long", "history", "of", "rivers", "began", "in", "1871")


# --- the server ---------------------------------------------------------------------------------------------------


async def serve(latency: float, tokens: int) -> None:
    """Print the port, then answer every request after ``latency`` seconds with as many tokens."""
    ids = [5 + i % 2 for i in range(tokens)]
    content = [{"token_id": i, "logprob": -0.5} for i in ids]
    choice = {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": "stop"}
    body = orjson.dumps({"choices": [choice]})

    async def answer(request: web.Request) -> web.Response:
        began = time.monotonic()
        await request.read()
        await asyncio.sleep(began + latency - time.monotonic())
        return web.Response(body=body, content_type="application/json")

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/inference/v1/generate", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def server(latency: float, tokens: int = 2) -> Iterator[str]:
    command = python_module("mem_agent.benchmarks.evaluation", str(latency), str(tokens))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def write_data(root: Path, documents: list[str], questions: int) -> None:
    entries = [
        {"context": documents[i % len(documents)], "input": f"key {i}?", "answers": ["red"], "index": i}
        for i in range(questions)
    ]
    (root / "eval_1.json").write_bytes(orjson.dumps(entries))


def text(words: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


# --- what is measured ---------------------------------------------------------------------------------------------


def tokens_in(model: Path, sample: str) -> int:
    return len(Tokenizer.from_file(str(model / "tokenizer.json")).encode(sample, add_special_tokens=False).ids)


def overhead(folder: Path, latency: float) -> Outcome:
    words = int((CHUNKS - 0.5) * AGENT["mem_chunk_tokens"] * 5000 / tokens_in(POCKET, text(5000, 0)))
    write_data(folder, [text(words, seed) for seed in range(8)], QUESTIONS)
    config = Config(**AGENT, mem_concurrency=IN_FLIGHT)
    with server(latency) as url:
        taken = timed(lambda: evaluation.run(folder, ["1"], POCKET, url, config, folder / "out", True))
    answers = read_rows(folder / "out", "1")
    turns = sum(row.counts["turns"] for row in answers)
    seconds, waited = sum(row.seconds for row in answers) / IN_FLIGHT, turns * latency / IN_FLIGHT
    return Outcome(
        NAME, f"the client's own share, {IN_FLIGHT} in flight, latency {latency:g} s", ((seconds - waited) / seconds,),
        unit="share", target=0.02, at_most=True, samples={"run": [taken]},
        note=f"{turns:.0f} turns, {taken.cpu:.1f} CPU seconds with start-up; any other work on the machine counts",
    )


def memory(folder: Path) -> Outcome:
    passages = [f"Document {i}:\nTitle {i}\n{text(100, i)}" for i in range(1, 101)]
    passages *= round(DOCUMENT_TOKENS / tokens_in(POCKET, "\n\n".join(passages)))
    write_data(folder, ["\n\n".join(passages)], 1)
    with server(0.0) as url:
        command = python_module(
            "mem_agent.eval_ruler_hqa", "--data-root", str(folder), "--length", "1",
            "--model", str(POCKET), "--url", url, "--output", str(folder / "out"),
        )
        settings = {name.upper(): str(value) for name, value in AGENT.items()}
        process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL)
        peak = peak_of(process)
    if process.returncode != 0:
        raise BenchmarkError(f"the evaluation of one long document ended with {process.returncode}")
    (row,) = read_rows(folder / "out", "1")
    assert row.failure is None, row.failure_message
    return Outcome(NAME, "memory for one document of 0.9M tokens", (peak,), unit="MB", target=300, at_most=True,
                   note=f"{row.counts['document_tokens']:,} tokens, {row.counts['turns']} turns, {row.seconds:.1f} s")


def peak_of(process: subprocess.Popen[bytes]) -> float:
    """The most memory in MB until the process ends. Its rusage would count what this process had when it forked."""
    peak = 0
    while process.poll() is None:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1])
        time.sleep(0.01)
    return peak / 1024


def rows(folder: Path) -> list[Outcome]:
    draw = random.Random(0)
    questions = ROWS // SAMPLES
    for name in ("a", "b"):
        (folder / name).mkdir()
        write_run(folder / name, Run(model=name, mode="recurrent", settings={}, samples=SAMPLES, data={"1": "x"},
                                     questions={"1": questions}))
        with RowWriter(folder / name) as writer:
            for i in range(ROWS):
                writer.write(made_up_row(str(i // SAMPLES), i % SAMPLES, float(draw.random() < 0.7), draw))
    calls = {"table": lambda: tables([folder / "a"]), "comparison": lambda: comparison(folder / "a", folder / "b")}
    return [_of_rows(name, timed(call)) for name, call in calls.items()]


def _of_rows(name: str, taken: Sample) -> Outcome:
    return Outcome(NAME, f"{name} of {ROWS:,} rows", (taken.wall,), unit="s", target=10, at_most=True,
                   samples={name: [taken]}, note=f"{taken.cpu:.2f} CPU seconds")


def made_up_row(question: str, sample: int, right: float, draw: random.Random) -> Row:
    return Row(
        question=question, sample=sample, length="1", task="", mode="recurrent", text="q" * 100, answers=("red",),
        response="r" * 200, prediction="red", scores=dict.fromkeys(("em", "f1", "sub_em", "sub_em_legacy"), right),
        outcome="completed", failure=None, failure_message=None,
        counts={"turns": 9, "document_tokens": draw.randrange(7000, 8000), "prompt_tokens": draw.randrange(9000)},
        memory_tokens=tuple(draw.randrange(400, 600) for _ in range(8)), memory_gold=(False, True) * 4,
        seconds=9 * draw.random(),
    )


def measure(quick: bool = False) -> list[Outcome]:
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        parts = {part: Path(name) / part for part in ("overhead", "memory", "rows")}
        for folder in parts.values():
            folder.mkdir()
        if not quick:
            found += [overhead(parts["overhead"], LATENCY), memory(parts["memory"])]
        return found + rows(parts["rows"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(serve(float(sys.argv[1]), int(sys.argv[2])))
    else:
        print_alone(measure)
