"""Every stage on a Ray of its own, ended by SIGKILL: nothing is asked for twice but what was in flight."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

from mem_agent.memsifter.vectors import VectorStore
from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.sessions.records import row_of
from mem_agent.sessions.wording import embedded_text
from mem_agent.tests.helpers.evaluations import make_model
from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stage_rows import embedded_row, history_question, read_rows, write_rows

pytestmark = [needs_local_ray, pytest.mark.servers]
NUMBER = re.compile(r"number 10(\d+)\?")
ROWS, IN_FLIGHT, ANSWERED = 60, 4, 20


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("BASE_URL", "API_KEY", "OPENAI_API_KEY", "RAY_ADDRESS", "DATASETS", "MODEL_NAME", "METHODS"):
        monkeypatch.delenv(name, raising=False)
    make_model(tmp_path / "ranker", positions=4096)
    return tmp_path


@pytest.mark.parametrize("stage, options, output", [
    ("session-ranking", ["--model", "ranker"], "ranker/set_test_ranking.parquet"),
    ("chat-infer", ["--model-name", "served", "--chat-concurrency", "4"], "served/emb/set_test_chat.parquet"),
])
def test_a_killed_stage_asks_for_the_rest(folder, stage, options, output):
    """The stub answers 20 requests; those behind them are in flight when the stage is killed."""
    write_rows(folder / "out/emb/set_test_embed.parquet", [embedded_row(history_question(n)) for n in range(ROWS)])
    chat = FakeChat(lambda body, number: "<ranking>0</ranking>" if number < ANSWERED else HANG)
    command = [sys.executable, "-m", "mem_agent", stage, "--output-dir", "out", "--embedding-model-name", "emb",
               *options]
    output = folder / "out" / output
    parts = output.with_name(f"{output.name}.parts")
    with chat_server(chat):
        env = os.environ | {"BASE_URL": chat.url, "MEM_MAX_FINAL": "64", "MEM_CONCURRENCY": str(IN_FLIGHT)}
        run = subprocess.Popen(command, env=env)
        wait_for(lambda: len(chat.bodies) >= ANSWERED + IN_FLIGHT and finished(parts) >= ANSWERED, run)
        run.send_signal(signal.SIGKILL)
        run.wait(HANGS_AFTER_S)
        before = asked(chat)
        chat.answer = lambda body, number: "<ranking>1</ranking>"
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
    twice = asked(chat) - before
    assert before.total() == ANSWERED + IN_FLIGHT and asked(chat).total() == ROWS + IN_FLIGHT
    assert len(asked(chat)) == ROWS and twice.total() == ROWS - ANSWERED
    rows = read_rows(output)
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(ROWS)]
    assert Counter(row["generated_text"] for row in rows) == {
        "<ranking>0</ranking>": ANSWERED, "<ranking>1</ranking>": ROWS - ANSWERED}


def finished(parts):
    return sum(path.read_bytes().count(b"\n") for path in parts.glob("*.jsonl"))


def asked(chat):
    return Counter(NUMBER.search(body["messages"][0]["content"])[1] for body in chat.bodies)


def test_stage_1_embeds_what_it_had_not(folder):
    questions = [history_question(n) for n in range(400)]
    write_rows(folder / "data/toy/test.parquet", [row_of(asked) for asked in questions])
    texts = [*(one.question for one in questions), *map(embedded_text, questions[0].sessions)]
    command = [sys.executable, "-m", "mem_agent", "session-embedding", "--embedding-model-name", "hashing",
               "--tokenizer", "ranker", "--output-dir", "out", "--data-dir", "data", "--embed-store-path", "store",
               "--batch-size", "8"]
    run = subprocess.Popen(command)

    def kept():
        return len(texts) - len(VectorStore(folder / "store/toy", HashingEncoder()).missing(texts))

    wait_for(lambda: kept() > 0, run)
    run.send_signal(signal.SIGKILL)
    run.wait(HANGS_AFTER_S)
    had = kept()
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
    assert f"{len(texts) - had} texts embedded, {had} were in" in done.stdout
    assert [len(row["similarities"]) for row in read_rows(folder / "out/hashing/toy_test_embed.parquet")] == [6] * 400
