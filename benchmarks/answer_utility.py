"""REWARD=answer_utility of a rollout: 16 prompts of 6 rankings, 7 tiers each, and a chat model that takes 200 ms.

The chat model is a server in a process of its own that waits and answers. A history has 100 sessions of 1,200 tokens,
of which rankings name 10 in an order of their own; the budget is 16,384 tokens. What siblings ask alike is asked once,
so the ideal is the time of the requests that are left, in waves of as many as may be in flight::

    ceil(requests / concurrency) * 0.2 s

The first rollout is measured: afterwards answers are remembered. ``shared`` is the share of the 672 scores that needed
no request.
"""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import orjson

from ..config import Config
from ..data.document_store import DocumentWriter, store_folder
from ..hooks.answer_utility import answer_utility
from ..hooks.host import HostArgs
from ..rewards.answer_utility import AnswerUtility
from ..rewards.reward import Answered
from ..system.python_command import python_module
from .outcome import Outcome, print_alone
from .stopwatch import Sample, timed

NAME = "answer_utility"
PROMPTS, SIBLINGS, SESSIONS, RANKED, WORDS = 16, 6, 100, 10, 900
LATENCY_S, CONCURRENCY, TARGET = 0.2, 32, 1.3
TIERS = 7


def measure(quick: bool = False) -> list[Outcome]:
    rounds = 1 if quick else 5
    with tempfile.TemporaryDirectory() as folder, stub(LATENCY_S) as url:
        rows = written(Path(folder))
        taken = {most: [one_rollout(Path(folder), rows, url, most, number) for number in range(rounds)]
                 for most in (CONCURRENCY, 2 * CONCURRENCY)}
    return [_line(most, measured) for most, measured in taken.items()]


def _line(most: int, measured: list[tuple[Sample, int]]) -> Outcome:
    samples, asked = [sample for sample, _ in measured], [number for _, number in measured]
    ideals = [math.ceil(number / most) * LATENCY_S for number in asked]
    total = PROMPTS * SIBLINGS * TIERS
    note = (f"{samples[0].wall:.2f} s, {asked[0]} requests, {1 - asked[0] / total:.0%} shared, "
            f"{samples[0].cpu:.2f} CPU seconds")
    ratios = tuple(sample.wall / ideal for sample, ideal in zip(samples, ideals, strict=True))
    what = f"{PROMPTS * SIBLINGS} rankings of {TIERS} tiers, {most} requests in flight, against the ideal"
    target = TARGET if most == CONCURRENCY else None
    return Outcome(NAME, what, ratios, target=target, at_most=True, note=note, samples={"rollout": samples})


def one_rollout(folder: Path, rows: list[dict[str, object]], url: str, most: int, seed: int) -> tuple[Sample, int]:
    """Time of all rewards of a rollout by a fresh reward, and the requests that it took."""
    config = Config(reward="answer_utility", answer_url=url, answer_model="stub", answer_concurrency=most,
                    answer_budget=16384, train_data=str(folder / "train.jsonl"), save_path=str(folder / "run"))
    reward = answer_utility(config, HostArgs.of(SimpleNamespace(mem_agent=config)))
    answers = rankings(rows, seed)
    sample = timed(lambda: asyncio.run(_scored(reward, answers)))
    return sample, reward.scores_made


async def _scored(reward: AnswerUtility, answers: list[Answered]) -> None:
    parts = await asyncio.gather(*(reward.parts(answer) for answer in answers))
    assert all("answer_utility" in one for one in parts)


def rankings(rows: list[dict[str, object]], seed: int) -> list[Answered]:
    draw = random.Random(seed)
    answers = []
    for group, row in enumerate(rows):
        for _ in range(SIBLINGS):
            named = ",".join(map(str, draw.sample(range(SESSIONS), RANKED)))
            reply = f"<ranking>{named}</ranking>"
            answers.append(Answered("rank", ("red",), row, reply, {"ranking": 0.0}, group=group))
    return answers


def written(folder: Path) -> list[dict[str, object]]:
    """Rows, with their histories in the store."""
    draw = random.Random(0)
    words = [f"word{number}" for number in range(500)]
    rows: list[dict[str, object]] = []
    with DocumentWriter(store_folder(folder / "train.jsonl")) as documents:
        for number in range(PROMPTS):
            talks = [[{"role": "user", "content": " ".join(draw.choices(words, k=WORDS))}] for _ in range(SESSIONS)]
            ids = [f"s{place}" for place in range(SESSIONS)]
            text = orjson.dumps({"sessions": talks, "ids": ids, "dates": [""] * SESSIONS}).decode()
            rows.append({"id": str(number), "shown": SESSIONS, "gold": [0], "question": "Which?", "answers": ["red"],
                         "history_id": documents.add(text), "session_tokens": [1200] * SESSIONS})
        documents.commit()
    return rows


@contextmanager
def stub(latency_s: float) -> Iterator[str]:
    """The address of a chat model in another process; it ends with the block."""
    command = python_module(f"{__package__}.chat_stub", str(latency_s))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()
            server.wait(10)


if __name__ == "__main__":
    print_alone(measure)
