"""The evaluation loop: one row per question, failures count, resume does only what is missing, others are refused."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import read_rows, read_run
from mem_agent.evaluation.tables import failures, tables
from mem_agent.hooks.traces import Trace, read_traces, trace_files
from mem_agent.tests.helpers.evaluations import (
    CONFIG,
    RED,
    counted,
    encode,
    entry,
    evaluate,
    make_model,
    means,
    summary_of,
    turns_asked,
    write_data,
)
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside, vllm_answer
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


def text_of(body):
    return make_tokenizer().decode(body["token_ids"])


def test_every_question_has_a_row_scored_over_all_golds(tmp_path, model):
    write_data(tmp_path)
    output = evaluate(tmp_path, model, FakeRouter(default=RED))
    rows = read_rows(output, "50")
    assert sorted(r.question for r in rows) == ["0", "1", "2"] and all(r.scores["em"] == 1.0 for r in rows)
    assert {(r.mode, r.length, r.sample, r.failure) for r in rows} == {("recurrent", "50", 0, None)}
    assert all([m["tokens"] for m in r.memories] == [CONFIG.mem_max_memory] for r in rows)
    assert counted(summary_of(output)) == (3, 0, 0) and means(summary_of(output))["sub_em"] == 100.0


def test_failures_count_as_wrong_and_are_asked_again(tmp_path, model):
    write_data(tmp_path, count=3)
    replies = {"q0": RED, "q1": 400, "q2": "abort"}

    def answer(body):
        found = [reply for name, reply in replies.items() if name in text_of(body)]
        return found[0] if found else RED

    output = evaluate(tmp_path, model, FakeRouter(default=answer))
    assert counted(summary_of(output)) == (3, 2, 0) and means(summary_of(output))["em"] == pytest.approx(100 / 3)
    assert sorted(line.split(": ")[1] for line in failures(output, ["50"])) == ["aborted", "rejected"]
    again = FakeRouter(default=RED)
    evaluate(tmp_path, model, again)
    assert means(summary_of(output))["em"] == 100.0 and len(turns_asked(again)) == 4


def test_samples_have_seeds_of_their_own_and_join_an_earlier_run(tmp_path, model):
    write_data(tmp_path, count=1)
    first, second = FakeRouter(default=RED), FakeRouter(default=RED)
    evaluate(tmp_path, model, first)
    output = evaluate(tmp_path, model, second, eval_samples=3)
    assert sorted(r.sample for r in read_rows(output, "50")) == [0, 1, 2] and first.requests
    seeds = [{r["sampling_params"]["seed"] for r in turns_asked(router)} for router in (first, second)]
    assert len(seeds[0]) == 2 and len(seeds[1]) == 4 and not seeds[0] & seeds[1]


def test_longest_documents_go_first_over_all_lengths_that_join_an_earlier_run(tmp_path, model):
    for length, times in (("50", 1), ("7", 3), ("9", 2)):
        write_data(tmp_path, length, 1, context="red key " * times, input=f"question {length}")
    evaluate(tmp_path, model, FakeRouter(default=RED), ("9",))
    router = FakeRouter(default=RED)
    output = evaluate(tmp_path, model, router, ("50", "7"), mem_concurrency=1)
    long = ["question 7" in text_of(request) for request in turns_asked(router)]
    assert long == sorted(long, reverse=True) and any(long) and not all(long)
    assert read_run(output).questions == {"9": 1, "50": 1, "7": 1}


# --- what joins -----------------------------------------------------------------------------------------------------

OTHERS = [
    ({"mem_chunk_tokens": 9}, "MEM_CHUNK_TOKENS was 8, is 9"),
    ({"eval_mode": "rag:bm25:3"}, "EVAL_MODE was 'recurrent', is 'rag:bm25:3'"),
    ({"mem_concurrency": 2, "engine_max_len": 999, "mem_max_chunks": 1, "lr": 1.0, "mem_prompts": ""}, ""),
]


@pytest.mark.parametrize("changed,named", OTHERS, ids=str)
def test_rows_of_other_settings_are_refused_in_a_line_that_names_them(changed, named, tmp_path, model):
    write_data(tmp_path, count=1)
    output = evaluate(tmp_path, model, FakeRouter(default=RED))
    if not named:
        evaluate(tmp_path, model, FakeRouter(default=RED), **changed)
        return
    with pytest.raises(EvalError, match=named):
        evaluate(tmp_path, model, FakeRouter(default=RED), **changed)
    assert read_run(output).settings["mem_chunk_tokens"] == 8


def test_rows_of_another_model_other_data_or_other_prompts_are_refused(tmp_path, model):
    write_data(tmp_path, count=1)
    (prompts := tmp_path / "p.yaml").write_text("final: 'one {problem} {memory}'")
    settings = {"mem_prompts": str(prompts)}
    evaluate(tmp_path, model, FakeRouter(default=RED), **settings)
    write_data(tmp_path, count=1, input="another")
    with pytest.raises(EvalError, match=r"another eval_50\.json"):
        evaluate(tmp_path, model, FakeRouter(default=RED), **settings)
    write_data(tmp_path, count=1)
    prompts.write_text("final: 'two {problem} {memory}'")
    with pytest.raises(EvalError, match="MEM_PROMPTS"):
        evaluate(tmp_path, model, FakeRouter(default=RED), **settings)
    prompts.write_text("final: 'one {problem} {memory}'")
    (model / "extra.json").write_text("{}")
    with pytest.raises(EvalError, match="another model"):
        evaluate(tmp_path, model, FakeRouter(default=RED), **settings)


@pytest.mark.parametrize("limit", [0, 256])
def test_direct_goes_on_in_its_own_folder(limit, tmp_path, model):
    """Also where ENGINE_MAX_LEN is not the server's own limit."""
    write_data(tmp_path)
    for _ in range(2):
        output = evaluate(tmp_path, model, FakeRouter(default=RED), eval_mode="direct", engine_max_len=limit,
                          base_url="/v1")
        (output / "50.jsonl").write_bytes((output / "50.jsonl").read_bytes().splitlines(keepends=True)[0])
    assert read_run(output).settings["engine_max_len"] == (limit or 4096)


# --- tasks ----------------------------------------------------------------------------------------------------------

OWN = """
from mem_agent.tasks import Task

class Own(Task):
    needs_document = False
    headline = "correct"
    def read_answer(self, reply): return reply.rpartition("=")[2].strip()
    def reward(self, reply, row): return self.metrics(self.read_answer(reply), reply, row)
    def metrics(self, answer, reply, row): return METRICS
"""
SHOTS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"},
         {"role": "assistant", "content": "= 2"}]


def own_task(tmp_path, metrics):
    (tmp_path / "own.py").write_text(OWN.replace("METRICS", metrics))
    return f"{tmp_path}/own.py:Own"


def test_entries_without_documents_are_asked_as_conversations_and_scored_with_their_fields(tmp_path, model):
    metrics = '{"other": 0.0, "correct": float(self.read_answer(reply) == str(row.metadata["target"]))}'
    entries = [{"messages": SHOTS, "input": f"{n}+{n}?", "answers": [str(2 * n)], "index": n, "task": "Own",
                "metadata": {"target": 2 * n}, "reply_prefix": "So "} for n in range(4)]
    (tmp_path / "eval_sums.json").write_text(json.dumps(entries))
    router = FakeRouter(default=encode("= 4"))
    output = evaluate(tmp_path, model, router, ["sums"], agent="chat", task=own_task(tmp_path, metrics))
    assert {r.question: r.scores["correct"] for r in read_rows(output, "sums")} == {"0": 0, "1": 0, "2": 1, "3": 0}
    assert [*summary_of(output, "sums").scores] == ["correct", "other"], "the task's headline is what it is judged by"
    assert min(map(text_of, turns_asked(router))) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n= 2"
        "<|im_end|>\n<|im_start|>user\n0+0?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo "
    )
    assert "| sums | 4 | 0 | 0 | - | 25.0 |" in tables([output])


def test_an_answer_that_cannot_be_scored_fails_alone(tmp_path, model):
    write_data(tmp_path)
    metrics = '{"correct": 100 / (row.question != "q1")}'
    output = evaluate(tmp_path, model, FakeRouter(default=RED), task=own_task(tmp_path, metrics))
    rows = {row.question: row for row in read_rows(output, "50")}
    assert [rows[number].scores["correct"] for number in "012"] == [100.0, 0.0, 100.0]
    assert [rows[number].failure for number in "012"] == [None, "internal", None]
    assert "ZeroDivisionError" in rows["1"].failure_message


def test_a_task_without_its_headline_and_a_question_without_its_document_are_one_line(tmp_path, model):
    write_data(tmp_path)
    with pytest.raises(EvalError, match="'correct'"):
        evaluate(tmp_path, model, FakeRouter(default=RED), task=own_task(tmp_path, '{"lost": 1.0}'))
    (tmp_path / "eval_50.json").write_text(json.dumps([entry(0, context="")]))
    with pytest.raises(EvalError, match="index 0"):
        evaluate(tmp_path, model, FakeRouter(default=RED), out="other")


# --- what is kept to be read ----------------------------------------------------------------------------------------


def kept(output):
    records = [record for file in trace_files(output) for record in read_traces(file)]
    return {one.id: one for one in records if isinstance(one, Trace)}


def test_every_answer_has_its_trajectory_and_a_failed_one_is_replaced(tmp_path, model):
    write_data(tmp_path, count=2)
    output = evaluate(tmp_path, model, FakeRouter([RED, RED, RED, 400], RED), mem_concurrency=1)
    assert [(one.id, one.failure) for one in kept(output).values()] == [("50-0-0", None), ("50-1-0", "rejected")]
    evaluate(tmp_path, model, FakeRouter(default=RED))
    rows = {row.question: row for row in read_rows(output, "50")}
    for trace in kept(output).values():
        row = rows[trace.question_id]
        assert (trace.length, trace.question, [*trace.golds], trace.failure) == ("50", row.text, row.answers, None)
        assert (trace.response, trace.prediction, trace.scores) == (row.response, row.prediction, row.scores)
        assert [turn.kind for turn in trace.turns] == ["memory", "final"]


# --- the command ----------------------------------------------------------------------------------------------------


class Engines:
    """A fleet that is a router."""

    router: FakeRouter
    made = 0

    def __init__(self, config, model, run_folder):
        Engines.made += 1
        self.url, self.length = f"http://127.0.0.1:{self.router.port}", config.engine_max_len

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def ensure_alive(self, hung_after_s):
        return 0


def test_engines_are_started_only_for_what_is_missing(tmp_path, model, monkeypatch, capsys):
    monkeypatch.setattr("mem_agent.serving.fleet.Fleet", Engines)
    monkeypatch.setenv("MEM_MAX_QUESTION", "8")
    write_data(tmp_path)
    command = ["--data-root", str(tmp_path), "--length", "50", "--model", str(model), "--output",
               str(tmp_path / "out")]
    for name in ("MEM_CHUNK_TOKENS", "MEM_MAX_MEMORY", "MEM_MAX_FINAL"):
        monkeypatch.setenv(name, "16")
    Engines.made, Engines.router = 0, FakeRouter(default=RED)
    with running_beside(Engines.router):
        assert ev.main(command) == ev.main(command) == 0
        assert Engines.made == 1 and "| out | 50 | 3 | 0 | 0 |" in capsys.readouterr().out
        Engines.router.default = lambda body: 400 if body["sampling_params"]["max_tokens"] > 1 else vllm_answer(RED)
        assert ev.main([*command[:-1], str(tmp_path / "failing")]) == ev.FINISHED_WITH_FAILURES
    monkeypatch.setenv("SEED", "7")
    assert ev.main(command) == 1 and "SEED" in capsys.readouterr().err and Engines.made == 2


def test_a_run_killed_at_any_moment_goes_on_with_what_is_missing(tmp_path, model):
    """SIGKILL after the second answer of three."""
    write_data(tmp_path)
    output, router = tmp_path / "out", FakeRouter(script=[RED] * 5, default="hang")
    command = [sys.executable, "-m", "mem_agent.eval_ruler_hqa", "--data-root", str(tmp_path), "--length", "50",
               "--model", str(model), "--output", str(output)]
    settings = {"MEM_CHUNK_TOKENS": "8", "MEM_MAX_MEMORY": "8", "MEM_MAX_FINAL": "16", "MEM_CONCURRENCY": "1"}
    with running_beside(router):
        url = {"BASE_URL": f"http://127.0.0.1:{router.port}"}
        child = subprocess.Popen(command, env=os.environ | settings | url)
        deadline = time.monotonic() + HANGS_AFTER_S
        while len(read_rows(output, "50")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
        router.script, router.default, before = [], RED, len(router.requests)
        assert subprocess.run(command, env=os.environ | settings | url, check=False).returncode == 0
        assert len(read_rows(output, "50")) == 3 and len(router.requests) - before == 3  # a probe and two turns


def test_wrong_use_is_one_line(tmp_path, model, capsys, monkeypatch):
    assert ev.main(["--table", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}: no results; give the folder of an evaluation\n"
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("EVAL_MODE", "direct")
    assert ev.main(["--length", "77", "--model", str(model), "--output", str(tmp_path / "out")]) == 1
    assert "eval_77.json" in capsys.readouterr().err
