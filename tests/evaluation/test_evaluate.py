"""Files of questions, of which bad ones are named; the evaluation loop: one row per question, failures count, resume
does only what is missing, others are refused."""

import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import load_questions
from mem_agent.evaluation.results import EvalError, read_rows, read_run
from mem_agent.evaluation.summary import failures, tables
from mem_agent.hooks.traces import Trace, kept_files, read_traces
from mem_agent.tests.helpers.evaluations import RED, counted, encode, evaluate, turns_asked, write_data
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

# --- files of questions ---------------------------------------------------------------------------------------------

WHOLE = {"context": "c", "input": "q", "answers": ["a"], "index": 1}


def questions_of(root, content, length="50"):
    (root / f"eval_{length}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return [entry.question for entry in load_questions(root, length)]


@pytest.mark.parametrize("content,message", [
    ("[", "not a JSON list"),
    ([WHOLE | {"answers": []}], "entry 0.*`answers`"),
    ([WHOLE, WHOLE | {"input": " ", "index": 2}], "entry 1.*`input`"),
    ([WHOLE | {"context": [7, 2]}], "entry 0.*hotpot_dev_distractor"),
    ([WHOLE, WHOLE], "entries 0 and 1 .*index 1"),
])
def test_bad_data_names_file_and_entry(tmp_path, content, message):
    with pytest.raises(EvalError, match=rf"eval_50\.json.*{message}"):
        questions_of(tmp_path, content)


def test_what_an_entry_may_leave_out_and_what_a_conversation_has(tmp_path):
    first, second = questions_of(tmp_path, [
        {"context": "c", "input": "q", "answers": [1995]}, WHOLE | {"index": "x7"}])
    assert (first.id, first.answers, first.task, first.metric) == ("0", ["1995"], "", "") and second.id == "x7"
    system = {"role": "system", "content": "Be brief."}
    own = {"numbers": [1, 2], "target": 3, "ground_truth": ["evil"], "task": "other"}
    (asked,) = questions_of(tmp_path, [{
        "input": "Reach 3.", "answers": ["1+2"], "task": "countdown", "metadata": own, "messages": [system],
        "reply_prefix": "So: "}])
    assert asked.prompt == [system, {"role": "user", "content": "Reach 3."}, {"role": "assistant", "content": "So: "}]
    assert asked.metadata == {"numbers": [1, 2], "target": 3, "ground_truth": ["1+2"], "task": "countdown"}


# --- rows -----------------------------------------------------------------------------------------------------------


def text_of(body):
    return make_tokenizer().decode(body["token_ids"])


def test_failures_count_as_wrong_and_are_asked_again(tmp_path, model):
    def answer(body):
        text = text_of(body)
        return 400 if "q1" in text else "abort" if "q2" in text else RED

    write_data(tmp_path, count=3)
    output = evaluate(tmp_path, model, FakeRouter(default=answer))
    assert counted(output) == [3, 2, 0] and sum(row["em"] for row in read_rows(output, "50")) == 1.0
    assert sorted(line.split(": ")[1] for line in failures(output, ["50"])) == ["aborted", "rejected"]
    again = FakeRouter(default=RED)
    evaluate(tmp_path, model, again)
    assert counted(output) == [3, 0, 0] and len(turns_asked(again)) == 4


def test_samples_and_lengths_join_an_earlier_run_longest_documents_first_with_seeds_of_their_own(tmp_path, model):
    for length, times in (("50", 1), ("7", 3), ("9", 2)):
        write_data(tmp_path, length, 1, context="red key " * times, input=f"question {length}")
    first, second, third = (FakeRouter(default=RED) for _ in range(3))
    evaluate(tmp_path, model, first, ("9",))
    evaluate(tmp_path, model, second, ("9",), eval_samples=3)
    seeds = [{r["sampling_params"]["seed"] for r in turns_asked(router)} for router in (first, second)]
    assert [*map(len, seeds)] == [2, 4] and not seeds[0] & seeds[1]
    output = evaluate(tmp_path, model, third, ("50", "7"), mem_concurrency=1)
    long = ["question 7" in text_of(request) for request in turns_asked(third)]
    assert long == sorted(long, reverse=True) and any(long) and not all(long)
    assert read_run(output).questions == {"9": 1, "50": 1, "7": 1}
    assert sorted(row["sample"] for row in read_rows(output, "9")) == [0, 1, 2]


# --- what joins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("named", "changed"), [
    ("MEM_CHUNK_TOKENS was 8, is 9", {"mem_chunk_tokens": 9}), ("MEM_PROMPTS", {"mem_prompts": "own.yaml"}),
    ("EVAL_MODE was 'recurrent', is 'rag:bm25:3'", {"eval_mode": "rag:bm25:3"}), (r"another eval_50\.json", {}),
    ("another model", {}),
])
def test_rows_of_something_else_are_refused_in_a_line_that_names_it(named, changed, tmp_path, model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("final: 'own {problem} {memory}'")
    write_data(tmp_path, count=1)
    evaluate(tmp_path, model, FakeRouter(default=RED))
    evaluate(tmp_path, model, FakeRouter(default=RED), mem_concurrency=2, engine_max_len=999, lr=1.0)
    if "eval_50" in named:
        write_data(tmp_path, count=1, input="another")
    if "model" in named:
        (model / "extra.json").write_text("{}")
    with pytest.raises(EvalError, match=named):
        evaluate(tmp_path, model, FakeRouter(default=RED), **changed)


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


def test_entries_are_asked_as_conversations_and_scored_by_an_own_task_and_what_it_cannot_score_fails_alone(
    tmp_path, model, caplog
):
    def own_task(name, metrics):
        (tmp_path / name).write_text(OWN.replace("METRICS", metrics))
        return f"{tmp_path / name}:Own"

    entries = [{"messages": SHOTS, "input": f"{n}+{n}?", "answers": [str(2 * n)], "index": n, "task": "Own",
                "metadata": {"target": 2 * n}, "reply_prefix": "So "} for n in range(4)]
    (tmp_path / "eval_sums.json").write_text(json.dumps(entries))
    router = FakeRouter(default=encode("= 4"))
    metrics = '{"other": 0.0, "correct": 1 / row.metadata["target"] * 4 * (answer == str(row.metadata["target"]))}'
    output = evaluate(tmp_path, model, router, ["sums"], agent="chat", task=own_task("own.py", metrics))
    rows = sorted(read_rows(output, "sums"), key=lambda row: row["_id"])
    assert [row["scores"]["correct"] for row in rows] == [0, 0, 1, 0]
    assert rows[0]["failure"] == "internal" and "ZeroDivisionError" in rows[0]["failure_message"]
    assert f"{tmp_path / 'own.py'}:9" in rows[0]["failure_message"] and caplog.text.count("Traceback") == 1
    assert min(map(text_of, turns_asked(router))) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n= 2"
        "<|im_end|>\n<|im_start|>user\n0+0?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo "
    )
    assert "| sums | 4 | 1 | 0 | - | 25.0 |" in tables([output])
    with pytest.raises(EvalError, match="'correct'"):
        evaluate(tmp_path, model, router, ["sums"], out="x", agent="chat", task=own_task("lost.py", '{"lost": 1.0}'))
    write_data(tmp_path, count=1, context="")
    with pytest.raises(EvalError, match="index 0"):
        evaluate(tmp_path, model, router, out="other")


# --- what is kept to be read ----------------------------------------------------------------------------------------


def test_every_answer_has_its_trajectory_and_a_failed_one_is_replaced(tmp_path, model):
    def kept(output):
        records = [record for file in kept_files(output) for record in read_traces(file)]
        return {one.id: one for one in records if isinstance(one, Trace)}

    write_data(tmp_path, count=2)
    output = evaluate(tmp_path, model, FakeRouter([RED, RED, RED, 400], RED), mem_concurrency=1)
    assert [(one.id, one.failure) for one in kept(output).values()] == [("50-0-0", None), ("50-1-0", "rejected")]
    evaluate(tmp_path, model, FakeRouter(default=RED))
    rows = {row["_id"]: row for row in read_rows(output, "50")}
    for trace in kept(output).values():
        row = rows[trace.question_id]
        assert (trace.length, trace.question, trace.failure) == ("50", row["input"], None)
        assert (trace.response, trace.prediction, trace.scores["em"]) == (row["response"], row["pred"], row["em"])
        assert [turn.kind for turn in trace.turns] == ["memory", "final"]


# --- the command ----------------------------------------------------------------------------------------------------

SETTINGS = {"MEM_CHUNK_TOKENS": "8", "MEM_MAX_MEMORY": "8", "MEM_MAX_FINAL": "16", "MEM_MAX_QUESTION": "8",
            "MEM_CONCURRENCY": "1"}


def test_engines_are_started_only_for_what_is_missing_and_wrong_use_is_one_line(tmp_path, model, monkeypatch, capsys):
    write_data(tmp_path)
    command = f"--data-root {tmp_path} --length 50 --model {model} --output {tmp_path / 'out'}".split()
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    router, made = FakeRouter(default=RED), []

    @asynccontextmanager
    async def engines(config, model, run_folder):
        made.append(run_folder)
        yield SimpleNamespace(url=f"http://127.0.0.1:{router.port}", ensure_alive=AsyncMock(return_value=0))

    monkeypatch.setattr("mem_agent.serving.fleet.Fleet", engines)
    with running_beside(router):
        assert ev.main(command) == ev.main(command) == 0
        assert len(made) == 1 and "| out | 50 | 3 | 0 | 0 |" in capsys.readouterr().out
        router.default = 400
        assert ev.main([*command[:-1], str(tmp_path / "failing")]) == ev.FINISHED_WITH_FAILURES
    monkeypatch.setenv("SEED", "7")
    assert ev.main(command) == 1 and "SEED" in capsys.readouterr().err and len(made) == 2
    assert ev.main(["--table", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}: no results; give the folder of an evaluation\n"
    assert ev.main([*command, "--length", "77"]) == 1 and "eval_77.json" in capsys.readouterr().err
