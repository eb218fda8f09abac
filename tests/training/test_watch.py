"""A run's watch: everything is on disk, whoever else is told; the terminal is left as it was."""

import logging

import pytest

from mem_agent.config import Config
from mem_agent.training import watch as module
from mem_agent.training.progress import Counts, Phase
from mem_agent.training.run_log import read_metrics
from mem_agent.training.watch import Watch, Watcher

METRICS = {"reward": 0.5, "seconds": 2.0, "seconds/rollout": 1.0, "seconds/log_probs": 0.0, "seconds/update": 0.5,
           "seconds/sync": 0.1}


class Told:
    def __init__(self, folder):
        self.folder, self.told = folder, []

    def log(self, rollout, metrics):
        assert read_metrics(self.folder)[-1]["rollout"] == rollout  # the disk first
        self.told.append((rollout, dict(metrics)))

    def close(self):
        self.told.append("closed")


@pytest.fixture
def told(tmp_path, monkeypatch):
    tracking = Told(tmp_path)
    monkeypatch.setattr(module, "start_tracking", lambda config, first: tracking)
    return tracking.told


def rollout(watch: Watcher, number: int) -> None:
    watch.enter(Phase.SAMPLING, number)
    watch.finish(number, METRICS)


def test_a_rollout_is_on_disk_in_the_log_and_with_the_tracker(tmp_path, told, caplog):
    caplog.set_level(logging.INFO, logger="mem_agent")
    watch = Watch(Config(save_path=str(tmp_path), num_rollout=3), 0)
    watch.begin(0, Counts)
    rollout(watch, 0)
    rollout(watch, 1)
    watch.close()
    assert read_metrics(tmp_path) == [{"rollout": number, **METRICS} for number in (0, 1)]
    assert told == [(0, METRICS), (1, METRICS), "closed"]
    assert [r.message.partition(" | ")[0] for r in caplog.records] == ["rollout 1/3", "rollout 2/3"]
    assert "(rollout 1.0, log-probs 0.0, update 0.5, sync 0.1)" in caplog.text


def test_what_a_continued_run_does_again_is_said_again(tmp_path, told):
    for first in (0, 1):
        watch = Watch(Config(save_path=str(tmp_path), num_rollout=3), first)
        watch.begin(first, Counts)
        for number in range(first, 3):
            rollout(watch, number)
    assert [line["rollout"] for line in read_metrics(tmp_path)] == [0, 1, 2]
    assert [each[0] for each in told] == [0, 1, 2, 1, 2]
