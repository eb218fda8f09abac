"""Traces on disk are read as they were written; what is none is named."""

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


def test_half_a_line_at_the_end_is_not_read(tmp_path):
    (tmp_path / "trajectories").mkdir()
    (tmp_path / "trajectories" / "50.jsonl").write_bytes(line_of(DOCUMENT) + line_of(TRACE) + line_of(TRACE)[:40])
    (file,) = trace_files(tmp_path)
    assert list(read_traces(file)) == [DOCUMENT, TRACE]


def test_a_folder_without_traces_is_named(tmp_path):
    with pytest.raises(TraceError, match="no trajectories"):
        trace_files(tmp_path)
