"""Recorded rollouts: the file, the paths made of it, and what real engines counted beside what simulated ones do."""

import gzip
import json

import pytest

from mem_agent.benchmarks.simulation.check import COSTS, compare, fit, main, nonnegative, replay
from mem_agent.benchmarks.simulation.prompts import least_computed, trace_paths, trace_trajectories
from mem_agent.benchmarks.simulation.traces import (
    RECORDED,
    Trace,
    TraceError,
    Turn,
    committed,
    read_trace,
    shared_lengths,
    write_trace,
)
from mem_agent.benchmarks.simulation.training import trace_tree_tokens


def turn(rank, prompt, shared, trajectory=0, reply=2):
    return Turn(trajectory, 0, prompt, reply, 0, 0, 1, 0, rank, shared)


def test_ranks_and_shared_lengths_of_the_docstring():
    ranks, shared = shared_lengths([[1, 2, 3, 5, 6], [7, 8], [1, 2, 3, 4]])
    assert (ranks, shared) == ([1, 2, 0], [3, 0, 0])


def test_paths_are_whole_blocks_and_extents_are_what_the_same_prompts_share():
    # Blocks of 2: 1 2 | 3 4 | 5, 1 2 | 3 4 | 6 7, 1 2 | 9 9
    turns = [turn(0, 5, 0), turn(1, 6, 4, 1), turn(2, 4, 2, 2)]
    a, b, c = trace_paths(Trace({}, [], turns), 2)
    assert [blocks for _, blocks in a] == [1, 1] and [blocks for _, blocks in b] == [1, 1, 1]
    assert a == b[:2] and c[0] == a[0] and c[1] not in a
    assert trace_tree_tokens(Trace({}, [], turns)) == 5 + 2 + 2 + 2 * 3


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.name.split(".")[0])
def test_simulated_engines_compute_the_tokens_that_real_ones_counted(path):
    trace = read_trace(path)
    outcome = replay(trace)
    for real, counts in zip(trace.engines, outcome.engines, strict=True):
        assert (counts.sent, counts.cached, counts.generated) == (real["sent"], real["cached"], real["generated"])
        assert counts.steps == pytest.approx(real["steps"], rel=0.2)
    assert sum(turn.cached for turn in trace.turns) == sum(real["cached"] for real in trace.engines)


def test_siblings_with_one_key_compute_what_whole_blocks_allow():
    """On real engines: nothing is computed twice because siblings ask together."""
    traces = [trace for path in committed() if "section-group" in path.name for trace in [read_trace(path)]]
    assert len(traces) >= 4
    for trace in traces:
        computed = sum(real["sent"] - real["cached"] for real in trace.engines)
        engines_share_no_prefix = least_computed(trace_trajectories(trace, 32), 32)
        assert computed == engines_share_no_prefix


def test_sequences_give_way_where_real_ones_did():
    """336 blocks of 32 tokens an engine; its last admitted sequences are computed again."""
    traces = [read_trace(path) for path in committed() if path.name.startswith("small-")]
    assert sum(real["preemptions"] for trace in traces for real in trace.engines) == 24
    for trace in traces:
        for real, counts in zip(trace.engines, replay(trace).engines, strict=True):
            assert abs(counts.preemptions - real["preemptions"]) <= 4


def test_costs_are_found_again():
    traces = [read_trace(path) for path in sorted(RECORDED.glob("calibrate-*.gz"))]
    assert len(traces) >= COSTS
    costs = fit(traces)
    assert all(weight >= 0 for weight in [*costs.weights, costs.request]) and costs.steps.prompt_token > 0
    for trace in traces:
        found = compare(trace, costs)
        assert sum(found["cpu_simulated"]) == pytest.approx(sum(found["cpu"]), rel=0.35)


def test_a_cost_that_would_be_negative_is_none():
    found = nonnegative(pytest.importorskip("numpy").array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]), [1.0, 3.0, 5.0])
    assert found[1] == 0.0 and found[0] == pytest.approx(22 / 14)


def test_a_trace_is_read_as_it_was_written(tmp_path):
    trace = read_trace(committed()[0])
    write_trace(tmp_path / "a.json.gz", trace)
    assert read_trace(tmp_path / "a.json.gz") == trace


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain", "not a trace"),
        (gzip.compress(b"[1]"), "version 1 is expected"),
        (gzip.compress(json.dumps({"format": "mem_agent-rollout-trace", "version": 2}).encode()), "record it anew"),
        (gzip.compress(json.dumps({"format": "mem_agent-rollout-trace", "version": 1, "settings": {}, "engines": [],
                                   "turns": {"group": [1]}}).encode()), "columns"),
    ],
    ids=["plain", "list", "version", "columns"],  # gzip writes the time of day, and every worker has its own
)
def test_another_file_is_refused_in_one_line(tmp_path, content, message, capsys):
    file = tmp_path / "trace.json.gz"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read_trace(file)
    assert main([str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_too_few_calibration_traces_are_refused(tmp_path, capsys):
    assert main(["--calibration", str(tmp_path)]) == 1
    assert "six" in capsys.readouterr().err.replace("6", "six")
