"""Samples to an accuracy, by hand: when a window has reached it, what has not, and the difference by seed."""

import json

import pytest

from mem_agent.benchmarks import samples
from mem_agent.benchmarks.outcome import BenchmarkError


def steps(*accuracies, trajectories=64):
    return [{"trajectories": trajectories, "accuracy": accuracy} for accuracy in accuracies]


@pytest.mark.parametrize("accuracies,expected,reached", [
    ((0.1, 0.3, 0.6, 0.5), 256, True),  # means 0.05, 0.2, 0.45, 0.55
    ((0.1, 0.3, 0.6, 0.3), 256, False),  # the last one is 0.45: all there are
    ((1.0, 0.0), 64, True),  # half of the first window is missing and wrong
    ((0.9, 0.0), 128, False),
])
def test_the_first_window_that_is_right_often_enough(accuracies, expected, reached):
    found = samples.samples_until(steps(*accuracies), accuracy=0.5, window=2)
    assert (found.samples, found.reached, found.total) == (expected, reached, 64 * len(accuracies))
    assert str(found) == f"{'' if reached else '> '}{expected}"


def test_a_rollout_in_which_all_failed_counts_as_wrong():
    rows = [*steps(0.8), {"trajectories": 64}, *steps(1.0)]
    assert samples.samples_until(rows, 0.5, 2).samples == 192
    with pytest.raises(BenchmarkError, match="no rollout tells"):
        samples.samples_until([{"trajectories": 64}], 0.5, 2)


@pytest.fixture
def run(tmp_path):
    def make(name, seed, *accuracies):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mem_agent.yaml").write_text(f"mem_agent:\n  SEED: {seed}\n")
        lines = [json.dumps({"rollout": k} | step) for k, step in enumerate(steps(*accuracies))]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        return str(folder)

    return make


def test_runs_are_compared_by_seed(run, capsys):
    first = [run("no-1", 1, 0, 0, 0, 1), run("no-2", 2, 0, 0, 1, 1), run("no-3", 3, 0, 0, 0, 0)]
    second = [run("knn-2", 2, 1, 1, 1, 1), run("knn-1", 1, 0, 0, 1, 1)]
    samples.main(["--first", *first, "--second", *second, "--window", "1"])
    said = capsys.readouterr().out
    assert "| 1 | 256 | 1.000 | 192 | 1.000 |" in said and "| 3 | > 256 | 0.000 |  |  |" in said
    # seeds 1 and 2: 256 and 192 against 192 and 64; of four patterns of signs two are as far
    assert "mean over 2 seeds: 224 and 128; second - first -96 (-128 to -64), p 0.50" in said


@pytest.mark.parametrize("break_it,message", [
    (lambda run: [run("a", 1, 0.0), run("b", 1, 0.0)], "b: a second run with SEED=1"),
    (lambda run: ["/nowhere"], "/nowhere: .*No such file.*; give the SAVE_PATH of runs"),
    (lambda run: [run("c", 9, 0.0)], "no SEED in common"),
])
def test_what_cannot_be_compared_is_one_line(run, break_it, message):
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        samples.main(["--first", *break_it(run), "--second", run("other", 1, 0.0)])
