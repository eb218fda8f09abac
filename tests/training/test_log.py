"""A run's log: everything is on disk, whoever else is told; a tracker may fail, and hears again what is done again."""

import logging
from contextlib import ExitStack

import pytest

from mem_agent.config import Config
from mem_agent.system.errors import MemAgentError
from mem_agent.training import log as module
from mem_agent.training.log import progress_line, read_metrics, run_log

METRICS = {"reward": 0.5, "loss": 0.001, "failed": 1, "trajectories": 8, "kl": None, "seconds/rollout": 1.0,
           "seconds/log_probs": 0.0, "seconds": 2.0}


def run(tmp_path, first, last):
    with run_log(Config(save_path=str(tmp_path), num_rollout=3, tracker="wandb"), first) as finish:
        for number in range(first, last):
            finish(number, METRICS)


def test_a_rollout_is_on_disk_in_the_log_and_with_the_tracker(tmp_path, monkeypatch, caplog):
    """The tracker fails at rollout 1."""
    told = []

    def send(number, metrics):
        assert read_metrics(tmp_path)[-1]["rollout"] == number  # the disk first
        told.append((number, metrics))
        if number == 1:
            raise OSError("the network\nis gone")

    monkeypatch.setitem(module.TRACKERS, "wandb", lambda config, first, exits: send)
    caplog.set_level(logging.INFO, logger="mem_agent")
    run(tmp_path, 0, 3)
    assert read_metrics(tmp_path) == [{"rollout": number, **METRICS} for number in range(3)]
    assert told == [(number, {k: v for k, v in METRICS.items() if v is not None}) for number in range(3)]
    assert progress_line(11, 40, METRICS) == (
        "rollout 12/40 | reward 0.500 | loss +0.00100 | 2.0 s (rollout 1.0, log-probs 0.0) | FAILED 1 of 8"
    )
    [warning] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "the network is gone" in warning
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"rollout": 3, "rew')
    run(tmp_path, 1, 2)  # resumed
    assert [line["rollout"] for line in read_metrics(tmp_path)] == [0, 1]
    monkeypatch.setitem(module.TRACKERS, "wandb", None)
    with pytest.raises(MemAgentError, match="TRACKER=wandb"):
        run(tmp_path, 0, 0)


@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_the_real_library_goes_on_with_the_run_that_it_knows(name, tmp_path, monkeypatch):
    """Offline: begun, told, ended, and continued."""
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    config, keys = Config(tracker=name, save_path=str(tmp_path)), set()
    for first in (0, 1):
        with ExitStack() as exits:
            module.TRACKERS[name](config, first, exits)(first, {"reward": 0.5, "eval/50/best@4": 0.25})
        keys |= {file.read_bytes() for file in tmp_path.glob("tracker.json")}
    assert len(keys) == (name == "wandb")
