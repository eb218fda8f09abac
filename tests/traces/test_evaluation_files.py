"""An evaluation's traces: each trajectory once, also where it is continued, and each length's share of the bound."""

import pytest

from mem_agent.traces.evaluation_files import EvaluationFiles
from mem_agent.traces.read_traces import read_traces, trace_files
from mem_agent.traces.trace import Trace, TraceDocument

DOCUMENT = TraceDocument(id="d", sections=("text",))


def trace(number, length="50", response=""):
    return Trace(id=f"{length}-{number}-0", length=length, document="d", response=response)


def written(folder, *traces, bound=10**6, asked=None):
    files = EvaluationFiles(folder, asked or {one.length: [one.id] for one in traces}, bound)
    done = [files.write(DOCUMENT, one) for one in traces]
    files.close()
    return done


def ids(folder):
    return {path.name: [record.id for record in read_traces(path)] for path in trace_files(folder)}


def test_a_continued_evaluation_goes_on_with_the_same_file(tmp_path):
    written(tmp_path, trace(0))
    written(tmp_path, trace(1))
    assert ids(tmp_path) == {"50.jsonl": ["d", "50-0-0", "50-1-0"]}


def test_what_is_asked_again_is_there_once(tmp_path):
    written(tmp_path, trace(0, response="first"), trace(1), asked={"50": ["50-0-0", "50-1-0"]})
    written(tmp_path, trace(0, response="second"))
    assert ids(tmp_path) == {"50.jsonl": ["d", "50-1-0", "50-0-0"]}
    assert list(read_traces(tmp_path / "trajectories" / "50.jsonl"))[-1].response == "second"


@pytest.mark.parametrize("first", [("50", "200", "800"), ("50",), ("800",)], ids=",".join)
def test_the_bound_holds_over_continued_evaluations(tmp_path, first):
    def ask(*lengths):
        written(tmp_path, *(trace(n, length, "x" * 100) for n in range(90) for length in lengths), bound=9_000,
                asked={length: [f"{length}-{n}-0" for n in range(90)] for length in lengths})
        return {path.stem: path.stat().st_size for path in trace_files(tmp_path)}

    before = ask(*first)
    after = ask("50", "800")
    assert sum(before.values()) <= 9_000 and sum(after.values()) <= 9_000
    assert after.get("200", 0) == before.get("200", 0) and ask("800")["800"] > 0


@pytest.mark.parametrize("rest", [b'{"kind": "traj', b'{"kind": "document", "id": "e", "sections": []}'])
def test_what_a_killed_run_left_of_a_line_is_cut_off(tmp_path, rest):
    written(tmp_path, trace(0))
    path = tmp_path / "trajectories" / "50.jsonl"
    path.write_bytes(path.read_bytes() + rest)
    written(tmp_path, trace(1))
    assert ids(tmp_path) == {"50.jsonl": ["d", "50-0-0", "50-1-0"]}


def test_each_length_has_its_share_whatever_the_others_took(tmp_path):
    files = EvaluationFiles(tmp_path, {"50": [], "200": []}, 20_000)
    for number in range(20):
        files.write(DOCUMENT, trace(number, "200", "x" * 2000))
    assert not files.has_room("200") and files.has_room("50") and files.write(DOCUMENT, trace(0))
    files.close()
    sizes = {path.name: path.stat().st_size for path in trace_files(tmp_path)}
    assert sizes["200.jsonl"] <= 10_000 and ids(tmp_path)["50.jsonl"] == ["d", "50-0-0"]
    assert len(ids(tmp_path)["200.jsonl"]) == 5, "four of 2,000 characters beside their document"
