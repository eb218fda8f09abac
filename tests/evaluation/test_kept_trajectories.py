"""An evaluation keeps what it read and wrote beside its rows, in every mode, and never for the price of a row."""

import logging

import pytest

from mem_agent.config import Config
from mem_agent.evaluation.results import read_rows
from mem_agent.tests.helpers.evaluations import RED, encode, evaluate, make_model, write_data
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.traces.read_traces import read_traces, trace_files
from mem_agent.traces.trace import Trace, TraceDocument


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


def kept(output):
    records = [record for file in trace_files(output) for record in read_traces(file)]
    documents = {one.id: one for one in records if isinstance(one, TraceDocument)}
    return documents, {one.id: one for one in records if isinstance(one, Trace)}


def test_every_answer_has_its_trajectory(tmp_path, model):
    write_data(tmp_path, count=2)
    output = evaluate(tmp_path, model, FakeRouter(default=RED), eval_samples=2)
    documents, traces = kept(output)
    rows = {(row.question, row.sample): row for row in read_rows(output, "50")}
    assert set(traces) == {"50-0-0", "50-0-1", "50-1-0", "50-1-1"} and len(rows) == 4
    for trace in traces.values():
        row = rows[trace.question_id, trace.sample]
        assert (trace.length, trace.group, trace.question, trace.golds) == ("50", row.question, row.text, row.answers)
        assert (trace.response, trace.prediction, trace.scores) == (row.response, row.prediction, row.scores)
        assert [turn.kind for turn in trace.turns] == ["memory", "final"]
        assert documents[trace.document].sections == (f"doc {row.question}",)
        assert "".join(trace.turns[-1].pieces) == "it is \\boxed{red}" == trace.response


@pytest.mark.parametrize("mode", ["direct", "rag"])
def test_so_it_is_where_all_is_asked_in_one_prompt(tmp_path, model, mode):
    write_data(tmp_path, count=1)
    documents, traces = kept(evaluate(tmp_path, model, FakeRouter(default=RED), eval_mode=mode))
    (trace,) = traces.values()
    (turn,) = trace.turns
    assert trace.agent == mode and turn.sections == (0,) and documents[trace.document].sections == ("doc 0",)


def test_what_failed_is_kept_and_replaced_once_it_is_answered(tmp_path, model):
    write_data(tmp_path, count=2)
    output = evaluate(tmp_path, model, FakeRouter([RED, RED, RED, 400], RED), mem_concurrency=1)
    assert [(one.id, one.failure) for one in kept(output)[1].values()] == [("50-0-0", None), ("50-1-0", "rejected")]
    evaluate(tmp_path, model, FakeRouter(default=RED))
    assert [(one.id, one.failure) for one in kept(output)[1].values()] == [("50-0-0", None), ("50-1-0", None)]
    assert len(list(read_traces(output / "trajectories" / "50.jsonl"))) == 4


def test_none_are_kept_where_none_are_wanted(tmp_path, model):
    write_data(tmp_path, count=1)
    output = evaluate(tmp_path, model, FakeRouter(default=RED), keep_trajectories=0)
    assert not (output / "trajectories").exists() and len(read_rows(output, "50")) == 1


def test_the_bound_is_shared_by_the_lengths_and_said_once(tmp_path, model, caplog, monkeypatch):
    monkeypatch.setattr(Config, "keep_trajectories_bytes", property(lambda config: 8_000))
    write_data(tmp_path, "50", 5)
    write_data(tmp_path, "200", 5, context="red " * 40)
    with caplog.at_level(logging.WARNING):
        output = evaluate(tmp_path, model, FakeRouter(default=encode("red " * 4)), ("50", "200"))
    said = [record.getMessage() for record in caplog.records if "KEEP_TRAJECTORIES_MB" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith(f"{output}/trajectories: KEEP_TRAJECTORIES_MB=500 is reached")
    sizes = {file.name: file.stat().st_size for file in trace_files(output)}
    assert set(sizes) == {"50.jsonl", "200.jsonl"} and all(0 < size <= 4_000 for size in sizes.values())
    assert len(read_rows(output, "50")) == len(read_rows(output, "200")) == 5
