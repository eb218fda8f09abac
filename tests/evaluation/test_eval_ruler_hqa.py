"""Evaluation: one row per question, failures count, resume does only what is missing, foreign results are refused."""

import json

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.results import lock_results, read_rows, read_run
from mem_agent.evaluation.tables import failures, unread
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.evaluations import (
    CONFIG,
    RED,
    counted,
    encode,
    evaluate,
    make_model,
    means,
    summary_of,
    turns_asked,
    write_data,
)
from mem_agent.tests.helpers.fake_router import FakeRouter, vllm_answer
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


def test_every_question_has_a_row_scored_over_all_golds(tmp_path, model):
    write_data(tmp_path)
    output = evaluate(tmp_path, model, FakeRouter(default=RED))
    rows = read_rows(output, "50")
    assert sorted(r.question for r in rows) == ["0", "1", "2"] and all(r.scores["em"] == 1.0 for r in rows)
    assert {(r.mode, r.length, r.sample, r.failure) for r in rows} == {("recurrent", "50", 0, None)}
    assert all(r.memory_tokens == (CONFIG.mem_max_memory,) for r in rows)
    summary = summary_of(output)
    assert counted(summary) == (3, 0, 0) and means(summary)["sub_em"] == 100.0


def test_published_files_of_numbers_are_read_with_the_raw_file(tmp_path, model):
    raw = tmp_path / "raw.json"
    row = {"_id": "a", "question": "q0", "answer": "red", "supporting_facts": [["Ann", 0]]}
    raw.write_text(json.dumps([row | {"context": [["Ann", ["is"]], ["Bob", ["was"]]]}]))
    write_data(tmp_path, "12800", count=1, context=[1, 0])
    output = evaluate(tmp_path, model, FakeRouter(default=RED), ["12800"], eval_raw=str(raw))
    assert counted(summary_of(output, "12800")) == (1, 0, 0)
    raw.write_text(raw.read_text().replace("was", "is"))
    with pytest.raises(ev.EvalError, match=r"is of another eval_12800\.json"):
        evaluate(tmp_path, model, FakeRouter(default=RED), ["12800"], eval_raw=str(raw))
    with pytest.raises(ev.EvalError, match="or set EVAL_RAW"):
        evaluate(tmp_path, model, FakeRouter(default=RED), ["12800"])


def test_an_unboxed_answer_scores_zero_everywhere(tmp_path, model):
    write_data(tmp_path)
    output = evaluate(tmp_path, model, FakeRouter(default=encode("blue")))
    assert set(means(summary_of(output)).values()) == {0.0}


def test_failures_stay_in_the_denominator_and_are_retried(tmp_path, model):
    write_data(tmp_path, count=2)

    def fails_for_one(body):
        if body["sampling_params"]["max_tokens"] > 1 and "q1" in make_tokenizer().decode(body["token_ids"]):
            return 400
        return vllm_answer(RED)

    output = evaluate(tmp_path, model, FakeRouter(default=fails_for_one))
    assert means(summary_of(output))["em"] == 50.0 and summary_of(output).failed == 1
    assert failures(output, ["50"])[0].startswith("50/1: rejected: ")
    again = FakeRouter(default=RED)
    evaluate(tmp_path, model, again)
    assert means(summary_of(output))["em"] == 100.0 and len(turns_asked(again)) == 2


def test_an_answer_that_the_server_aborts_is_a_failure(tmp_path, model):
    write_data(tmp_path, count=1)
    output = evaluate(tmp_path, model, FakeRouter(script=[RED], default="abort"))
    assert failures(output, ["50"]) == ["50/0: aborted: the server ended the request"]


def test_a_killed_run_continues_behind_its_last_whole_row(tmp_path, model):
    write_data(tmp_path)
    output = evaluate(tmp_path, model, FakeRouter(default=RED))
    path = output / "50.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:20])
    assert summary_of(output).missing == 2
    router = FakeRouter(default=RED)
    evaluate(tmp_path, model, router)
    assert len(turns_asked(router)) == 4 and len(read_rows(output, "50")) == 3
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_a_second_run_in_one_folder_is_refused(tmp_path, model):
    write_data(tmp_path)
    with lock_results(tmp_path / "out"), pytest.raises(MemAgentError, match="another evaluation is writing there"):
        evaluate(tmp_path, model, FakeRouter(default=RED))
    evaluate(tmp_path, model, FakeRouter(default=RED))


def test_samples_have_seeds_of_their_own_and_join_an_earlier_run(tmp_path, model):
    write_data(tmp_path, count=1)
    first, second = FakeRouter(default=RED), FakeRouter(default=RED)
    evaluate(tmp_path, model, first)
    output = evaluate(tmp_path, model, second, eval_samples=3)
    assert sorted(r.sample for r in read_rows(output, "50")) == [0, 1, 2]
    seeds = [{r["sampling_params"]["seed"] for r in turns_asked(router)} for router in (first, second)]
    assert len(seeds[0]) == 2 and len(seeds[1]) == 4 and not seeds[0] & seeds[1]


def test_longest_documents_go_first_over_all_lengths(tmp_path, model):
    """Neither as the lengths were named, nor by their names: as text 50 is before 7."""
    for length, times in (("50", 1), ("7", 3)):
        write_data(tmp_path, length, 1, context="red key " * times, input=f"question {length}")
    router = FakeRouter(default=RED)
    evaluate(tmp_path, model, router, ("50", "7"), mem_concurrency=1)
    asked = [make_tokenizer().decode(r["token_ids"]) for r in turns_asked(router)]
    long = ["question 7" in text for text in asked]
    assert long == sorted(long, reverse=True) and any(long) and not all(long)


def test_ruler_tasks_are_scored_by_their_own_metric(tmp_path, model):
    change = {"answers": ["red", "blue"], "metric": "string_match_all", "task": "niah_multivalue"}
    write_data(tmp_path, "niah_multivalue_8192", 1, **change)
    output = evaluate(tmp_path, model, FakeRouter(default=RED), ("niah_multivalue_8192",))
    (row,) = read_rows(output, "niah_multivalue_8192")
    assert row.scores == {"ruler": 0.5} and row.task == "niah_multivalue"
    assert "| 1 | 0 | 0 | 0.0% | 50.0 | 50.0 to 50.0 | - | - | - |" in ev.table([output])


@pytest.mark.parametrize("most,share", [(0, "0.0%"), (1, "76.5%")])
def test_documents_are_read_whole_unless_a_cap_is_asked_for(most, share, tmp_path, model):
    """A training cap (MEM_MAX_CHUNKS) is none of evaluation's. EVAL_MAX_CHUNKS=1 leaves 8 of 34 tokens."""
    write_data(tmp_path, "50", 1, context="red " * 32)
    output = evaluate(tmp_path, model, FakeRouter(default=RED), ("50",), mem_chunk_tokens=8, mem_max_chunks=1,
                      eval_max_chunks=most)
    (row,) = read_rows(output, "50")
    assert (row.counts["dropped_tokens"], row.counts["document_tokens"]) == (26 * most, 34)
    assert f"| out | 50 | 1 | 0 | 0 | {share} |" in ev.table([output])
    assert unread(output, ["50"]) == [f"eval_50: {share} of the documents' tokens were not read"] * most


@pytest.mark.parametrize("what", ["model", "settings", "data"])
def test_results_of_another_run_are_refused(tmp_path, model, what):
    write_data(tmp_path)
    evaluate(tmp_path, model, FakeRouter(default=RED))
    changed = {}
    if what == "model":
        (model / "extra.json").write_text("{}")
    elif what == "settings":
        changed = {"mem_chunk_tokens": 9}
    else:
        write_data(tmp_path, input="another")
    with pytest.raises(ev.EvalError, match="MEM_CHUNK_TOKENS was 8, is 9" if changed else "SAVE_FILE"):
        evaluate(tmp_path, model, FakeRouter(default=RED), **changed)


def test_more_lengths_join_an_earlier_run_and_what_is_missing_is_said(tmp_path, model):
    for length in ("50", "100"):
        write_data(tmp_path, length)
    evaluate(tmp_path, model, FakeRouter(default=RED), ("50",))
    output = evaluate(tmp_path, model, FakeRouter(default=encode("x")), ("100",))
    (output / "100.jsonl").unlink()
    assert ev.table([output]).splitlines()[2:] == [
        "| out | 50 | 3 | 0 | 0 | 0.0% | 100.0 | 29.2 to 100.0 | 100.0 | 100.0 | 100.0 |",
        "| out | 100 | 0 | 0 | 3 | - | - | - | - | - | - |",
    ]
    assert read_run(output).questions == {"50": 3, "100": 3}


def test_a_missing_length_and_a_folder_without_results_are_one_line(tmp_path, capsys):
    with pytest.raises(ev.EvalError, match=r"eval_77\.json: no such file"):
        list(ev.load_questions(tmp_path, "77"))
    assert ev.main(["--table", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}: no results; give the folder of an evaluation\n"


TASK = """
from mem_agent.tasks import Task

class Own(Task):
    headline = "found"
    def read_answer(self, reply): return ANSWER
    def reward(self, reply, row): return {}
    def metrics(self, reply, row): return METRICS
"""
def test_a_task_whose_metrics_lack_its_headline_is_one_line(tmp_path, model):
    write_data(tmp_path)
    (tmp_path / "own.py").write_text(TASK.replace("ANSWER", "reply").replace("METRICS", '{"lost": 1.0}'))
    with pytest.raises(ev.EvalError, match="metrics has no 'found', its headline; it has lost"):
        evaluate(tmp_path, model, FakeRouter(default=RED), task=f"{tmp_path}/own.py:Own")


def test_check_prints_length_and_missing_answers_alone_whatever_classes_print(tmp_path, model, capsys, monkeypatch):
    write_data(tmp_path)
    made = "\n    def __init__(self, settings): print('made')\n"
    (tmp_path / "own.py").write_text(TASK.replace("ANSWER", "reply").replace("METRICS", "{}") + made + "print('loud')")
    monkeypatch.setenv("TASK", f"{tmp_path}/own.py:Own")
    monkeypatch.setenv("MEM_MAX_QUESTION", "8")
    data = ["--data-root", str(tmp_path), "--length", "50"]
    monkeypatch.setenv("ENGINE_MAX_LEN", "2048")
    monkeypatch.setenv("EVAL_MODE", "direct")
    assert ev.main([*data, "--model", str(model), "--output", str(tmp_path / "out"), "--check"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "2048 3\n" and "loud" in printed.err and "made" in printed.err
