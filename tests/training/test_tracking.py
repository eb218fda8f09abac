"""TRACKER: what a library may do to a run, which is nothing once it has begun."""

import logging
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent.config import Config
from mem_agent.system import tracker_library
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.system.tracker_library import LIBRARIES, check_tracker
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.training import tracking
from mem_agent.training.tracking import Tracking, run_key, start_tracking


class Kept:
    """A tracker that fails at the rollouts in ``fails``."""

    def __init__(self, fails=()):
        self.fails, self.logged, self.closed = fails, [], False

    def log(self, rollout, metrics):
        if rollout in self.fails:
            raise OSError("the network\nis gone")
        self.logged.append((rollout, metrics))

    def close(self):
        self.closed = True


def test_metrics_arrive_in_order_and_as_they_were():
    kept = Kept()
    sent = Tracking("kept", lambda: kept)
    metrics = {"reward": 0.5}
    for rollout in range(50):
        sent.log(rollout, metrics)
    metrics["reward"] = 9.0
    sent.close()
    assert kept.logged == [(rollout, {"reward": 0.5}) for rollout in range(50)] and kept.closed


def test_what_a_library_raises_is_one_warning_until_it_works_again(caplog):
    kept = Kept(fails=(1, 2, 4))
    sent = Tracking("wandb", lambda: kept)
    for rollout in range(6):
        sent.log(rollout, {})
    sent.close()
    assert [rollout for rollout, _ in kept.logged] == [0, 3, 5]
    assert [record.message for record in caplog.records] == [
        "TRACKER=wandb: OSError: the network is gone; the run goes on, metrics.jsonl has everything"
    ] * 2


def test_a_library_that_hangs_keeps_its_thread_and_not_the_run(caplog):
    never = threading.Event()
    hanging = SimpleNamespace(log=lambda rollout, metrics: never.wait(), close=lambda: None)
    sent = Tracking("mlflow", lambda: hanging)
    sent.wait(HANGS_AFTER_S)
    for rollout in range(3):
        sent.log(rollout, {})  # returns at once
    sent.close(within_s=0.05)
    assert "did not take the last metrics" in caplog.text
    never.set()


@pytest.fixture
def broken(monkeypatch):
    def cannot(run):
        raise RuntimeError("no API key;\nlog in")

    monkeypatch.setitem(tracking.TRACKERS, "wandb", cannot)


def test_a_new_run_does_not_begin_with_a_tracker_that_cannot(tmp_path, broken):
    with pytest.raises(MemAgentError, match=r"^TRACKER=wandb cannot begin: RuntimeError: no API key; log in; put"):
        start_tracking(Config(tracker="wandb", save_path=str(tmp_path)), 0)


def test_a_run_that_continues_at_night_goes_on_without(tmp_path, broken, caplog):
    assert start_tracking(Config(tracker="wandb", save_path=str(tmp_path)), 7) is None
    assert "TRACKER=wandb cannot go on: RuntimeError: no API key; log in; metrics go to" in caplog.text


def test_no_tracker_makes_no_file(tmp_path):
    assert start_tracking(Config(save_path=str(tmp_path)), 0) is None and not list(tmp_path.iterdir())


def test_a_run_keeps_its_key(tmp_path):
    first = run_key(tmp_path / "a")
    assert first == run_key(tmp_path / "a") != run_key(tmp_path / "b") and first.isalnum()


# --- the libraries --------------------------------------------------------------------------------------------------


def test_an_absent_library_and_one_that_a_host_does_not_take_are_one_line(monkeypatch):
    check_tracker("none", ())
    monkeypatch.setattr(tracker_library.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^TRACKER=trackio: this Python has no module trackio; pip install trackio"):
        check_tracker("trackio")
    with pytest.raises(ConfigError, match=r"^TRACKER=mlflow: slime writes to wandb and tensorboard alone; set"):
        check_tracker("mlflow", ("wandb", "tensorboard"), "slime")


class Calls(ModuleType):
    """A stand-in for a library: it writes down what it is called with, and gives itself for whatever is made."""

    def __init__(self, name, seen):
        super().__init__(name)
        self.seen = seen

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments, **named):
            self.seen.append((name, arguments, named))
            return self

        return call


@pytest.fixture
def library(monkeypatch):
    seen = []

    def stand_in(name):
        monkeypatch.setitem(sys.modules, name, Calls(name, seen))
        return seen

    return stand_in


@pytest.mark.parametrize("name,module", [("wandb", "wandb"), ("trackio", "trackio"), ("swanlab", "swanlab")])
def test_a_continued_run_is_the_same_run_to_the_library(name, module, tmp_path, library, monkeypatch):
    """Two processes, the second of which says rollout 1 again."""
    seen = library(module)
    monkeypatch.setenv("WANDB_PROJECT", "memories")
    config = Config(tracker=name, save_path=str(tmp_path / "pocket"), seed=7)
    for first in (0, 1):
        sent = start_tracking(config, first)
        sent.log(first, {"reward": 0.25})
        sent.close()
    begun = [(arguments, named) for call, arguments, named in seen if call == "init"]
    assert begun[0] == begun[1] and begun[0][1]["resume"] == "allow" and begun[0][1]["config"]["SEED"] == 7
    assert "memories" in (*begun[0][0], begun[0][1].get("project"))
    key = run_key(tmp_path / "pocket")
    assert begun[0][1].get("id", "") == key or begun[0][1]["name"] == f"pocket-{key}"
    logged = [(arguments, named) for call, arguments, named in seen if call == "log"]
    assert [arguments[0]["reward"] for arguments, _ in logged] == [0.25, 0.25]
    assert [arguments[0].get("rollout", named.get("step")) for arguments, named in logged] == [0, 1]


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_real_library_where_it_is_installed(name, tmp_path, monkeypatch, caplog):
    """Offline: begun, told, ended, and continued, without a word of complaint."""
    pytest.importorskip(LIBRARIES[name])
    for variable, value in {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline", "WANDB_SILENT": "true",
                            "TRACKIO_DIR": str(tmp_path / "trackio")}.items():
        monkeypatch.setenv(variable, value)
    config = Config(tracker=name, save_path=str(tmp_path / "run"))
    caplog.set_level(logging.WARNING, logger="mem_agent")
    for first in (0, 1):
        sent = start_tracking(config, first)
        sent.log(first, {"reward": 0.5, "eval/50/best@4": 0.25})
        sent.close()
    assert [record for record in caplog.records if record.name == "mem_agent"] == []
