"""Every stage on Ray, ended by SIGKILL: the same command asks for nothing twice but what was in flight.

Four processes, each with a Ray of its own, take the three stages: one is killed in the first, the next goes on there
and is killed in the second, the third in the third.
"""

import re
import signal
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from mem_agent.memsifter.embed import VectorStore
from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.sessions import row_of
from mem_agent.tests.helpers.fake_router import chat_model, running_beside
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stage_rows import history_question, read_rows, write_rows

pytestmark = [needs_local_ray, pytest.mark.servers]
NUMBER = re.compile(r"number 10(\d+)\?")
ROWS, IN_FLIGHT, ANSWERED = 32, 4, 8
SHARED = ["--output-dir", "out", "--embedding-model-name", "hashing"]
OPTIONS = {
    "embed": ["--data-dir", "data", "--embed-store-path", "store", "--tokenizer", "ranker"],
    "rank": ["--model", "ranker"],
    "answer": ["--model-name", "served", "--methods", "ranker", "--chat-concurrency", str(IN_FLIGHT)],
}
OUTPUTS = {"rank": "out/ranker/toy_test_ranking.parquet", "answer": "out/served/ranker/toy_test_chat.parquet"}


def start(*stages):
    """These stages, one after the other, in a process of their own, which prints to a file of the last one's name."""
    calls = " or ".join(f"{name}.main({OPTIONS[name] + SHARED})" for name in stages)
    script = f"import sys; from mem_agent.memsifter import answer, embed, rank; sys.exit({calls})"
    return subprocess.Popen([sys.executable, "-c", script], stdout=open(f"{stages[-1]}.out", "w"))


def test_killed_stages_ask_for_the_rest(folder, monkeypatch):
    """The stub answers 8 requests of a stage; those behind them are in flight when it is killed."""
    questions = [history_question(n) for n in range(ROWS)]
    write_rows("data/toy/test.parquet", [row_of(asked) for asked in questions])
    texts = ROWS + len(questions[0].sessions)
    asked, killed = {"rank": Counter(), "answer": Counter()}, set()

    def reply(body):
        text = body["messages"][0]["content"]
        stage = "rank" if "<ranking>" in text else "answer"
        asked[stage][NUMBER.search(text)[1]] += 1
        if stage in killed:
            return "<ranking>1</ranking>"
        return "<ranking>0</ranking>" if asked[stage].total() <= ANSWERED else "hang"

    def kept():
        return len(VectorStore(folder / "store/toy", HashingEncoder()))

    def kill(run, when):
        wait_for(when, run)
        run.send_signal(signal.SIGKILL)
        run.wait(HANGS_AFTER_S)

    def waiting(stage):
        parts = folder.glob(f"{OUTPUTS[stage]}.parts/*.jsonl")
        finished = sum(path.read_bytes().count(b"\n") for path in parts)
        return finished >= ANSWERED and asked[stage].total() >= ANSWERED + IN_FLIGHT

    with running_beside(chat_model(reply)) as chat:
        for name, value in {"BASE_URL": chat.url, "MEM_CONCURRENCY": IN_FLIGHT}.items():
            monkeypatch.setenv(name, str(value))
        kill(start("embed"), lambda: kept() > 0)
        had = kept()
        for stages in (("embed", "rank"), ("rank", "answer")):
            kill(start(*stages), partial(waiting, stages[-1]))
            killed.add(stages[-1])
            assert asked[stages[-1]].total() == ANSWERED + IN_FLIGHT
        assert start("answer").wait(HANGS_AFTER_S) == 0
    (again,) = re.findall(r"(\d+) texts embedded", (folder / "rank.out").read_text())
    assert int(again) <= texts - had and kept() == texts
    for stage, output in OUTPUTS.items():
        assert len(asked[stage]) == ROWS and asked[stage].total() == ROWS + IN_FLIGHT
        rows = read_rows(output)
        assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(ROWS)]
        assert Counter(row["generated_text"] for row in rows) == {
            "<ranking>0</ranking>": ANSWERED, "<ranking>1</ranking>": ROWS - ANSWERED}
