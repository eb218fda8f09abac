"""Files that are nested without need are refused in one line that names them, by whatever reads them."""

import pytest

from mem_agent.data.manifest import ManifestError, read_manifest
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import read_rows, read_run
from mem_agent.report.training_run import RunError, read_training_runs
from mem_agent.rewards.judge import BadVerdict, read_verdict
from mem_agent.traces.read_traces import read_traces
from mem_agent.traces.trace import TraceError

READERS = {
    "run.json": (lambda folder: read_run(folder), EvalError),
    "50.jsonl": (lambda folder: read_rows(folder, "50"), EvalError),
    "metrics.jsonl": (lambda folder: read_training_runs([folder]), RunError),
    "manifest.json": (read_manifest, ManifestError),
    "traces.jsonl": (lambda folder: list(read_traces(folder / "traces.jsonl")), TraceError),
}


@pytest.mark.parametrize("depth", [65, 900, 100_000])
@pytest.mark.parametrize("name", READERS)
def test_a_deep_file_is_one_line_with_its_name(tmp_path, name, depth):
    read, error = READERS[name]
    (tmp_path / name).write_text('{"kind": "trajectory", "rollout": 0, "files": {}, "x": %s}\n' %
                                 ("[" * depth + "]" * depth))
    with pytest.raises(error, match=name) as raised:
        read(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_deep_verdict_gives_no_score():
    with pytest.raises(BadVerdict):
        read_verdict(f'{{"score": 1, "reason": {"[" * 65 + "]" * 65}}}')


@pytest.mark.parametrize("strange", ['{"_id": "zz"}', '{"_id": ["a"]}', '{"_id": null}', "[]", "null", "7", "{}"])
def test_a_strange_row_of_results_is_named_by_its_line(tmp_path, strange):
    (tmp_path / "50.jsonl").write_text(strange + "\n")
    with pytest.raises(EvalError, match=r"50\.jsonl: line 1 is no row of an evaluation .*; remove that line"):
        read_rows(tmp_path, "50")
