"""The comparison of agents on one server: turns, rounds and time as a server of fixed latency makes them."""

import json
from types import SimpleNamespace

from mem_agent.benchmarks.agents import HEADER, compare, line
from mem_agent.config import Config
from mem_agent.tests.helpers.evaluations import encode, make_model
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

LATENCY = 0.05
COLUMNS = [name.strip() for name in HEADER.splitlines()[0].strip("|").split("|")]


def reply(body):
    """Finds the answer in the second section; knows when there is nothing, and when it is done."""
    prompt = make_tokenizer().decode(body["token_ids"])
    if "<section>" not in prompt:
        return encode("\\boxed{red}" if "red\n</memory>" in prompt else "\\boxed{}")
    found, kept = "RX" in prompt.partition("<section>")[2], "red\n</memory>" in prompt
    if "`finish`" in prompt:
        return encode("finish\nred" if found else "skip")
    return encode("red" if found or kept else "nothing")


def cells(text):
    return dict(zip(COLUMNS, (cell.strip() for cell in text.strip("|").split("|")), strict=True))


def test_every_agent_answers_the_same_questions_on_one_server(tmp_path):
    model = make_model(tmp_path / "model")
    entries = [{"context": "QWZRXYUJ", "input": f"q{i}?", "answers": ["red"], "index": i} for i in range(2)]
    (tmp_path / "eval_4.json").write_text(json.dumps(entries))
    config = Config(mem_chunk_tokens=3, mem_max_memory=16, mem_max_final=16, mem_parallel=3, mem_concurrency=8)
    router = FakeRouter(default=reply, delay=LATENCY)
    with running_beside(router):
        url = f"http://127.0.0.1:{router.port}"
        texts = list(compare(["memagent", "gated", "parallel"], ["4"], tmp_path, model, url, config, tmp_path / "out"))
    plain, gated, parallel = map(cells, texts)
    assert [row["agent"] for row in (plain, gated, parallel)] == ["memagent", "gated", "parallel"]
    assert {row["sub_em"] for row in (plain, gated, parallel)} == {"100.0"}
    chunks = float(plain["chunks"])
    assert float(plain["turns"]) == float(plain["rounds"]) == chunks + 1 >= 4
    assert float(gated["chunks read"]) < float(plain["chunks read"]) == chunks
    assert float(gated["turns"]) == float(gated["chunks read"]) + 1
    assert float(parallel["turns"]) >= chunks + 1 and float(parallel["rounds"]) < float(plain["rounds"])
    for row in (plain, gated, parallel):
        waited = LATENCY * float(row["rounds"])
        assert waited <= float(row["seconds a document"]) < waited + 10  # a busy machine is slower, never quicker
        assert float(row["seconds in all"]) >= waited


def test_failed_answers_are_wrong_and_in_no_mean():
    counts = {"chunks": 3, "chunks_read": 2, "turns": 3, "rounds": 3}
    good = SimpleNamespace(failure=None, counts=counts, seconds=2.0, scores={"sub_em": 1.0})
    bad = SimpleNamespace(failure="timeout", counts={}, seconds=600.0, scores={"sub_em": 0.0})
    row = cells(line("gated", "3", [good, bad], 9.0))
    assert (row["seconds a document"], row["sub_em"], row["chunks read"]) == ("2.000", "50.0", "2.00")
