"""Rollouts survive a kill; a replay under other settings is refused; absorbed ones go."""

from mem_agent.config import Config
from mem_agent.training.journal import Journal, Rollout
from mem_agent.training.run_log import RunLog, read_metrics

ROLLOUT = Rollout({"tokens": [[1, 2]], "rewards": [0.1 + 0.2]}, 9, {"reward": 1 / 3})


def test_round_trip_is_exact(tmp_path):
    Journal(tmp_path, Config()).write(3, ROLLOUT)
    assert Journal(tmp_path, Config(num_rollout=7)).read(3) == ROLLOUT
    assert Journal(tmp_path, Config()).read(4) is None


def test_other_settings_refuse_the_replay(tmp_path):
    Journal(tmp_path, Config()).write(3, ROLLOUT)
    assert Journal(tmp_path, Config(lr=1.0)).read(3) is None
    assert Journal(tmp_path, Config(num_engines=2)).read(3) == ROLLOUT


def test_half_written_files_are_nothing(tmp_path):
    journal = Journal(tmp_path, Config())
    journal.write(3, ROLLOUT)
    (journal.folder / "rollout_0000004.tmp").write_bytes(b"{")
    (journal.folder / "rollout_0000005.json").write_bytes(b"")
    assert journal.read(4) is None and journal.read(5) is None


def test_forget_removes_up_to_the_checkpoint(tmp_path):
    journal = Journal(tmp_path, Config())
    for number in range(5):
        journal.write(number, ROLLOUT)
    journal.forget(2)
    assert [journal.read(n) is None for n in range(5)] == [True, True, True, False, False]


def test_a_resumed_log_has_each_rollout_once(tmp_path):
    log = RunLog(tmp_path, 0)
    for number in range(4):
        log.write(number, {"reward": number})
    with log.path.open("ab") as file:
        file.write(b'{"rollout": 4, "rew')
    RunLog(tmp_path, 2).write(2, {"reward": 9})
    assert [(m["rollout"], m["reward"]) for m in read_metrics(tmp_path)] == [(0, 0), (1, 1), (2, 9)]


def test_a_run_goes_on_from_another_folder_and_under_the_settings_it_left(tmp_path, monkeypatch):
    (tmp_path / "train.jsonl").write_text("{}")
    (tmp_path / "own.py").write_text("from mem_agent.agents.memagent import MemAgent as Own")
    monkeypatch.chdir(tmp_path)
    config = Config(train_data="train.jsonl", agent="own.py:Own", save_path="run")
    Journal("run", config).write(3, ROLLOUT)
    assert Journal("run", config.with_absolute_paths()).read(3) == ROLLOUT
    (tmp_path / "own.py").write_text("from mem_agent.agents.rememr1 import ReMemR1 as Own")
    assert Journal("run", config).read(3) is None
