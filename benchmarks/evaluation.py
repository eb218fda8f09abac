"""The evaluation client alone: ``python -m mem_agent.benchmarks.evaluation {overhead,memory,rows} [--model FOLDER]``.

overhead  256 questions about 8 documents of 8 chunks of 1024 tokens, 256 requests in flight, each answered after
          LATENCY seconds: the share of the answers' time in which they do not wait for the server.
          The CPU seconds say what of it is the client's own where other programs share the machine
memory    the most memory the client ever takes for one document of 900K tokens, read in chunks of 1024
rows      100,000 rows of 12,500 questions: reading, means and intervals, and a comparison of two such runs

LATENCY is 10 seconds: a memory of 512 tokens at the 50 tokens a second that an engine gives each of 256 sequences.
A fixed latency is the worst case, as all requests come back at one moment and the last of them waits for all others.
The server is a process of its own and answers two fixed tokens, so what is measured beyond LATENCY is the client's.
Start-up (some seconds for imports, the tokenizer and the data) is left out of the overhead and in the memory.
"""

from __future__ import annotations

import argparse
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

POCKET = Path(__file__).parents[1] / "pocket" / "start"
LATENCY, IN_FLIGHT, QUESTIONS, CHUNKS = 10.0, 256, 256, 8
DOCUMENT_TOKENS = 900_000
AGENT = {"mem_chunk_tokens": 1024, "mem_max_memory": 256, "mem_max_chunks": 100_000}
ROWS, SAMPLES = 100_000, 8
WORDS = ("The", "key", "of", "Anna", "is", "red", "and", "a", "long", "history", "of", "rivers", "began", "in", "1871")


# --- the server ---------------------------------------------------------------------------------------------------


async def serve(latency: float) -> None:
    """Print the port, then answer every request after ``latency`` seconds."""
    content = [{"token_id": i, "logprob": -0.5} for i in (5, 6)]
    choice = {"token_ids": [5, 6], "logprobs": {"content": content}, "finish_reason": "stop"}
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
def server(latency: float) -> Iterator[str]:
    command = [sys.executable, "-m", "mem_agent.benchmarks.evaluation", "serve", "--latency", str(latency)]
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


def overhead(model: Path, folder: Path, latency: float) -> None:
    words = int((CHUNKS - 0.5) * AGENT["mem_chunk_tokens"] * 5000 / tokens_in(model, text(5000, 0)))
    write_data(folder, [text(words, seed) for seed in range(8)], QUESTIONS)
    with server(latency) as url:
        began = time.process_time()
        evaluation.run(folder, ["1"], model, url, Config(**AGENT, mem_concurrency=IN_FLIGHT), folder / "out", True)
        computed = time.process_time() - began
    answers = read_rows(folder / "out", "1")
    turns = sum(row.counts["turns"] for row in answers)
    taken, waited = sum(row.seconds for row in answers) / IN_FLIGHT, turns * latency / IN_FLIGHT
    print(f"{turns:.0f} turns, latency {latency:g} s, {IN_FLIGHT} in flight: {taken:.2f} s, of which {waited:.2f} s "
          f"is waiting; overhead {(taken - waited) / taken:.2%} (target: under 2%); "
          f"{computed:.1f} CPU seconds with start-up")


def memory(model: Path, folder: Path) -> None:
    passages = [f"Document {i}:\nTitle {i}\n{text(100, i)}" for i in range(1, 101)]
    passages *= round(DOCUMENT_TOKENS / tokens_in(model, "\n\n".join(passages)))
    document = "\n\n".join(passages)
    write_data(folder, [document], 1)
    with server(0.0) as url:
        command = [sys.executable, "-m", "mem_agent.eval_ruler_hqa", "--data-root", str(folder), "--length", "1",
                   "--model", str(model), "--url", url, "--output", str(folder / "out")]
        settings = {name.upper(): str(value) for name, value in AGENT.items()}
        process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL)
        peak = peak_of(process)
    (row,) = read_rows(folder / "out", "1")
    assert process.returncode == 0 and row.failure is None, row.failure_message
    counts = row.counts
    print(f"{len(document) / 2**20:.1f} MB, {counts['document_tokens']:,} tokens, {counts['turns']} turns: "
          f"{peak:.0f} MB at most, {row.seconds:.1f} s (target: under 300 MB)")


def peak_of(process: subprocess.Popen[bytes]) -> float:
    """The most memory in MB until the process ends. Its rusage would count what this process had when it forked."""
    peak = 0
    while process.poll() is None:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1])
        time.sleep(0.01)
    return peak / 1024


def rows(folder: Path) -> None:
    draw = random.Random(0)
    questions = ROWS // SAMPLES
    for name in ("a", "b"):
        (folder / name).mkdir()
        write_run(folder / name, Run(model=name, mode="recurrent", settings={}, samples=SAMPLES, data={"1": "x"},
                                     questions={"1": questions}))
        with RowWriter(folder / name) as writer:
            for i in range(ROWS):
                writer.write(made_up_row(str(i // SAMPLES), i % SAMPLES, float(draw.random() < 0.7), draw))
    calls = {"table": lambda: tables([folder / "a"]), "compare": lambda: comparison(folder / "a", folder / "b")}
    for name, call in calls.items():
        began, computed = time.perf_counter(), time.process_time()
        print(call().splitlines()[-1])
        print(f"{name} of {ROWS:,} rows: {time.perf_counter() - began:.2f} s (target: under 10 s), "
              f"{time.process_time() - computed:.2f} CPU seconds")


def made_up_row(question: str, sample: int, right: float, draw: random.Random) -> Row:
    return Row(
        question=question, sample=sample, length="1", task="", mode="recurrent", text="q" * 100, answers=("red",),
        response="r" * 200, prediction="red", scores=dict.fromkeys(("em", "f1", "sub_em", "sub_em_legacy"), right),
        outcome="completed", failure=None, failure_message=None,
        counts={"turns": 9, "document_tokens": draw.randrange(7000, 8000), "prompt_tokens": draw.randrange(9000)},
        memory_tokens=tuple(draw.randrange(400, 600) for _ in range(8)), memory_gold=(False, True) * 4,
        seconds=9 * draw.random(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the evaluation client.")
    parser.add_argument("what", choices=("overhead", "memory", "rows", "serve"))
    parser.add_argument("--model", type=Path, default=POCKET)
    parser.add_argument("--latency", type=float, default=LATENCY)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        match options.what:
            case "serve":
                uvloop.run(serve(options.latency))
            case "overhead":
                overhead(options.model, Path(name), options.latency)
            case "memory":
                memory(options.model, Path(name))
            case "rows":
                rows(Path(name))


if __name__ == "__main__":
    main()
