"""Evaluations that a host has its rollout hooks make are kept, within a bound for all of them, and change nothing."""

from dataclasses import replace

from mem_agent import rollout
from mem_agent.config import Config
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.keep_evaluation import keep_evaluation
from mem_agent.hooks.keep_trajectories import in_background
from mem_agent.report.viewer import show
from mem_agent.report.viewer.groups import Place, read_groups
from mem_agent.tests.hooks.test_keep_trajectories import checkpoint, logged, sampled  # noqa: F401 - a fixture
from mem_agent.traces.read_traces import read_traces, trace_files
from mem_agent.traces.trace import Trace, TraceDocument


def all_written():
    assert in_background("", lambda: None).result()


def written(folder, name):
    all_written()
    records = list(read_traces(folder / "trajectories" / name))
    return [one for one in records if isinstance(one, TraceDocument)], [r for r in records if isinstance(r, Trace)]


def test_the_log_hook_of_an_evaluation_keeps_what_was_answered(checkpoint, tmp_path):  # noqa: F811
    args, samples = sampled(checkpoint, tmp_path, groups=2)
    args.n_samples_per_eval_prompt = 2
    assert rollout.log_eval(12, args, {"h q/a": {"samples": samples}, "bare": {"rewards": [1.0]}}, {}) is False
    documents, traces = written(tmp_path, "eval_000012_h_q_a.jsonl")
    assert [(t.question_id, t.sample, t.prediction, t.reward) for t in traces] == [
        ("0", 0, "red", 1.0), ("0", 1, "blue", 0.0), ("1", 0, "red", 1.0), ("1", 1, "blue", 0.0)
    ]
    assert {t.document for t in traces} == {document.id for document in documents}
    assert {t.advantage for t in traces} == {None} and len({t.id for t in traces}) == 4
    assert Place.of(traces[0]).label == "length h q/a after rollout 12"


def test_a_run_that_was_set_back_shows_one_line_and_the_other_where_it_was_put(checkpoint, tmp_path, capsys):  # noqa: F811
    args, samples = sampled(checkpoint, tmp_path, groups=1)
    for number in (2, 3, 4):
        logged(number, args, samples)
        rollout.log_eval(number, args, {"set": {"samples": samples}}, {})
    logged(3, args, samples)
    rollout.log_eval(3, args, {"set": {"samples": samples}}, {})
    all_written()
    names = [["eval_000002_set", "eval_000003_set", "rollout_000002", "rollout_000003"],
             ["eval_000003_set", "eval_000004_set", "rollout_000003", "rollout_000004"]]
    folders = [tmp_path, tmp_path / "trajectories" / "given_up_000003.1"]
    assert [[path.stem for path in trace_files(folder)] for folder in folders] == names
    for folder, newest in zip(folders, ("rollout 3", "rollout 4"), strict=True):
        assert {group.place.rollout for group in read_groups(folder)} == {int(newest[-1]) - 1, int(newest[-1])}
        assert show.main([str(folder), "--rollout", newest[-1]]) == 0 and newest in capsys.readouterr().out


def test_all_evaluations_of_a_run_share_the_bound(checkpoint, tmp_path):  # noqa: F811
    args, samples = sampled(checkpoint, tmp_path, groups=3)
    config = replace(args.mem_agent, num_rollout=10, eval_interval=4, keep_trajectories_mb=1)
    assert config.evaluations == 3 and Config().evaluations == 20
    args.mem_agent, args.n_samples_per_eval_prompt = config, 2
    keep_evaluation(HostArgs.of(args), 0, {"whole": samples})
    assert len(written(tmp_path, "eval_000000_whole.jsonl")[1]) == 6
    size = (tmp_path / "trajectories" / "eval_000000_whole.jsonl").stat().st_size
    sets = 1_000_000 // 3 // (size * 2 // 3 + 10)  # two of three questions fit
    keep_evaluation(HostArgs.of(args), 1, {f"set{n}": samples for n in range(sets)})
    assert len(written(tmp_path, "eval_000001_set0.jsonl")[1]) == 4
    files = list((tmp_path / "trajectories").glob("eval_000001_*"))
    assert len(files) == sets and sum(file.stat().st_size for file in files) <= 1_000_000 // 3
