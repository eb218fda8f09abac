"""Traces on disk are read as they were written; what is none is named."""

import numpy as np
import orjson
import pytest

from mem_agent.traces.read_traces import read_traces, trace_files
from mem_agent.traces.trace import Trace, TraceDocument, TraceError, TraceTurn, line_of, record_of

DOCUMENT = TraceDocument(id="9f", sections=("Ann has", "silver."))
TURN = TraceTurn(kind="memory", sections=(0,), reply="metal", memory="metal", pieces=("met", "al"),
                 log_probs=(-0.25, -0.5), rewards={"recall": 0.5}, gold=False)
TRACE = Trace(id="12-3-0", rollout=12, group="3", question="Which?", golds=("silver",), document="9f", turns=(TURN,),
              reward=1.0, reward_parts={"answer": 1.0}, outcome="completed")


@pytest.mark.parametrize("record", [DOCUMENT, TRACE, Trace(id="x")], ids=lambda record: type(record).__name__)
def test_a_line_is_read_as_it_was_written(record):
    assert record_of(line_of(record)) == record


def test_what_a_later_version_wrote_is_read():
    assert record_of(line_of(DOCUMENT).replace(b'"id"', b'"later":1,"id"')) == DOCUMENT


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"kind":"x"}', b'{"kind":"trajectory"}'])
def test_what_is_no_trace_is_named_by_file_and_line(tmp_path, line):
    file = tmp_path / "x.jsonl"
    file.write_bytes(line_of(TRACE) + line + b"\n")
    with pytest.raises(TraceError, match=r"x\.jsonl: line 2 is no trace"):
        list(read_traces(file))


@pytest.mark.parametrize(("name", "wrong"), [
    ("turns", "x"), ("turns", [1]), ("scores", None), ("golds", "silver"), ("rollout", 1.5), ("question", None),
])
def test_a_field_of_another_type_is_named(name, wrong):
    with pytest.raises(ValueError, match=rf"^{name}"):
        record_of(orjson.dumps(orjson.loads(line_of(TRACE)) | {name: wrong}))


def test_what_is_no_number_is_read_where_it_is_one_of_several():
    values = orjson.loads(line_of(TRACE)) | {"reward_parts": {"a": None, "b": True}}
    assert record_of(orjson.dumps(values)).reward_parts == {"a": None, "b": True}


def test_numbers_of_numpy_are_numbers():
    trace = Trace(id="x", reward=np.float32(0.5), accuracy=np.float64(1), scores={"mine": np.bool_(True)})
    assert record_of(line_of(trace)) == Trace(id="x", reward=0.5, accuracy=1.0, scores={"mine": True})


def test_half_a_line_at_the_end_is_not_read(tmp_path):
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "50.jsonl").write_bytes(line_of(DOCUMENT) + line_of(TRACE) + line_of(TRACE)[:40])
    (file,) = trace_files(tmp_path)
    assert list(read_traces(file)) == [DOCUMENT, TRACE]


def test_a_folder_without_traces_is_named(tmp_path):
    with pytest.raises(TraceError, match="no trajectories"):
        trace_files(tmp_path)
