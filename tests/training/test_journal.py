"""Rollouts survive a kill; a replay under other settings is refused; absorbed ones go."""

import pytest

from mem_agent.config import Config
from mem_agent.training.journal import Journal, Rollout, fingerprint
from mem_agent.training.run_log import RunLog, read_metrics

ROLLOUT = Rollout({"tokens": [[1, 2]], "rewards": [0.1 + 0.2]}, 9, {"reward": 1 / 3})


def test_round_trip_is_exact(tmp_path):
    Journal(tmp_path, Config()).write(3, ROLLOUT)
    assert Journal(tmp_path, Config(num_rollout=7)).read(3) == ROLLOUT
    assert Journal(tmp_path, Config()).read(4) is None


@pytest.mark.parametrize("content", [b"", b'{"fingerprint": "', b"[1]", b'{"fingerprint": "x", "one": 1}'])
def test_a_damaged_record_is_named_and_sampled_again(tmp_path, caplog, content):
    journal = Journal(tmp_path, Config())
    for number in (2, 3):
        journal.write(number, ROLLOUT)
    (journal.folder / "rollout_0000003.json").write_bytes(content)
    assert journal.read(2) == ROLLOUT and journal.read(3) is None


def test_what_followed_a_rollout_that_is_sampled_again_is_removed(tmp_path, caplog):
    journal = Journal(tmp_path, Config())
    for number in (2, 3, 4, 3):
        journal.write(number, ROLLOUT)
    assert [journal.read(number) is None for number in (2, 3, 4)] == [False, False, True]
    assert "rollout_0000004.json" in caplog.text


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


# --- the fingerprint -------------------------------------------------------------------------------------------------

@pytest.fixture
def base(tmp_path):
    for name in ("train.jsonl", "other.jsonl", "other.yaml"):
        (tmp_path / name).write_text("{}\n")
    return Config(train_data=str(tmp_path / "train.jsonl"), train_procs=2)


@pytest.mark.parametrize("changed", [
    {"num_engines": 2}, {"save_interval": 3}, {"eval_temperature": 0.1}, {"save_path": "elsewhere"},
    {"answer_url": "http://127.0.0.1:1"}, {"num_rollout": 7},
])
def test_places_and_patience_leave_a_replay_as_it_is(base, tmp_path, changed):
    Journal(tmp_path, base).write(0, ROLLOUT)
    assert Journal(tmp_path, base.replace(**changed)).read(0) == ROLLOUT


@pytest.mark.parametrize("changed", [
    {"lr": 1.0}, {"seed": 2}, {"mem_chunk_tokens": 5}, {"agent_args": "x=1"}, {"reward_args": "x=1"}, {"kl_coef": 0.0},
    {"engine_args": "--dtype float16"}, {"train_procs": 1}, {"loss_agg": "token"},
])
def test_any_other_setting_refuses_the_replay(base, tmp_path, changed):
    Journal(tmp_path, base).write(0, ROLLOUT)
    assert Journal(tmp_path, base.replace(**changed)).read(0) is None


@pytest.mark.parametrize("named", ["mem_prompts", "agent", "task", "reward", "train_data"])
def test_a_file_that_is_written_anew_under_its_name_refuses_the_replay(named, base, tmp_path):
    """The prompts and the user's classes by what they say, the training file by its size."""
    path = tmp_path / "mine.py"
    source = "from mem_agent.agents.memagent import MemAgent\nclass Mine(MemAgent): pass\n"
    path.write_text(source)
    config = base.replace(**{named: str(path) + ":Mine" * (named in ("agent", "task", "reward"))})
    before = fingerprint(config)
    assert fingerprint(config) == before
    path.write_text(source + "# changed\n")
    assert fingerprint(config) != before
    path.write_text(source)
    assert fingerprint(config) == before


def test_a_run_goes_on_from_another_folder_and_under_the_settings_it_left(tmp_path, monkeypatch):
    (tmp_path / "train.jsonl").write_text("{}")
    (tmp_path / "own.py").write_text("from mem_agent.agents.memagent import MemAgent as Own")
    monkeypatch.chdir(tmp_path)
    config = Config(train_data="train.jsonl", agent="own.py:Own", save_path="run")
    Journal("run", config).write(3, ROLLOUT)
    assert Journal("run", config.with_absolute_paths()).read(3) == ROLLOUT
    (tmp_path / "own.py").write_text("from mem_agent.agents.rememr1 import ReMemR1 as Own")
    assert Journal("run", config).read(3) is None
