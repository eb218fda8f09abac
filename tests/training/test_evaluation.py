"""Evaluations on a run's own engines: when they go on, what ends them, what they come before and after."""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mem_agent.config import Config
from mem_agent.system.errors import MemAgentError
from mem_agent.system.processes import FleetError, ProcessError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.system.test_processes import group_members
from mem_agent.training import evaluation as module
from mem_agent.training import train as loop
from mem_agent.training.evaluation import Check, Evaluation
from mem_agent.training.progress import Counts

POCKET = Path(__file__).parents[2] / "pocket"


class Fleet:
    def __init__(self, url="http://127.0.0.1:9", error=None, looked=lambda looks: None):
        self.config, self.url, self.error, self.looks, self.looked = Config(), url, error, 0, looked

    async def ensure_alive(self, hung_after_s):
        assert hung_after_s == self.config.mem_request_timeout  # engines may be inside a long step
        self.looks += 1
        self.looked(self.looks)
        if self.error:
            raise self.error
        return 0


def evaluation(tmp_path, code):
    """One whose client runs ``code``."""
    made = Evaluation(Config(save_path=str(tmp_path)), "before", POCKET / "start")
    made.command = [sys.executable, "-c", code]
    return made


@pytest.mark.parametrize("code", [0, 3])
def test_answers_that_failed_do_not_end_a_run(code, tmp_path):
    made = evaluation(tmp_path, f"import sys; print('| table |', sys.argv[1:]); sys.exit({code})")
    asyncio.run(made.run(Fleet()))
    asyncio.run(made.run(Fleet()))
    assert made.said() == "| table | ['--url', 'http://127.0.0.1:9']"  # of the last time alone
    made.log_path.unlink()
    assert made.said() == "(its log is gone)"


def test_a_client_that_gives_up_ends_the_run_with_its_line(tmp_path):
    made = evaluation(tmp_path, "import sys; sys.exit('error: /e.json: no such file')")
    with pytest.raises(ProcessError, match=r"evaluation of before: .* code 1; .*error: /e\.json: no such file"):
        asyncio.run(made.run(Fleet()))


def test_engines_are_kept_alive_meanwhile(tmp_path, monkeypatch):
    """The client ends after the second look."""
    monkeypatch.setattr(module, "CHECK_EVERY_S", 0.01)
    end = tmp_path / "end"
    fleet = Fleet(looked=lambda looks: end.touch() if looks == 2 else None)
    waits = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
    asyncio.run(asyncio.wait_for(evaluation(tmp_path, waits).run(fleet), HANGS_AFTER_S))
    assert fleet.looks >= 2


@pytest.mark.parametrize("ending", ["cancelled", "no engine left"])
def test_a_client_never_outlives_its_evaluation(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECK_EVERY_S", 0.2)
    started = []

    class Watched(module.ChildProcess):
        def __init__(self, *args):
            super().__init__(*args)
            started.append(self.pid)

    monkeypatch.setattr(module, "ChildProcess", Watched)
    error = FleetError("ENGINE_RESTARTS=3 is used up") if ending != "cancelled" else None

    async def run():
        task = asyncio.ensure_future(
            evaluation(tmp_path, "import time; time.sleep(600)").run(Fleet(error=error, looked=lambda _: cut())))
        cut = task.cancel if error is None else bool
        await task

    with pytest.raises(FleetError if error else asyncio.CancelledError):
        asyncio.run(run())
    assert len(started) == 1 and group_members(started[0]) == []


def test_a_check_gives_its_two_numbers_or_its_line():
    check = [sys.executable, "-c", "import sys; assert sys.argv[1:] == ['--check']; print(256, 7)"]
    assert Check(check).result() == (256, 7)
    refused = Check([sys.executable, "-c", "import sys; sys.exit('x\\nerror: /out holds results of another model')"])
    with pytest.raises(MemAgentError, match=r"^/out holds results of another model$"):
        refused.result()


def test_the_rows_are_those_of_the_client(tmp_path, monkeypatch):
    """The real client, with a router in place of engines; what is complete is not asked again."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    for name, value in {"DATA_ROOT": tmp_path, "LENGTH": 1, "ENGINE_MAX_LEN": 256, "MEM_CHUNK_TOKENS": 32,
                        "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 12, "MEM_MAX_QUESTION": 16,
                        "MEM_PROMPTS": POCKET / "prompts.yaml", "BASE_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setenv(name, str(value))
    made = Evaluation(Config(save_path=str(tmp_path / "run")), "before", POCKET / "start")
    assert made.start_check().result() == (256, 1)
    router = FakeRouter(default=[5])
    with running_beside(router):
        asyncio.run(made.run(Fleet(f"http://127.0.0.1:{router.port}")))
    assert "| before | 1 | 1 | 0 | 0 |" in made.said()
    assert len((tmp_path / "run" / "eval" / "before" / "1.jsonl").read_text().splitlines()) == 1
    assert made.start_check().result() == (256, 0)


# --- in a run -------------------------------------------------------------------------------------------------------


class Side:
    """A rollout side that writes down what is asked of it."""

    def __init__(self, config, evaluated=None, engine_len=0):
        self.config, self.evaluated, self.engine_len, self.calls = config, evaluated, engine_len, []

    def wait_until_ready(self):
        self.calls.append("ready")

    def counts(self):
        return Counts()

    def evaluate(self, evaluation, model):
        self.calls.append(f"{evaluation.name} {model.name}")

    def close(self):
        self.calls.append("closed")


@pytest.fixture
def stubs(monkeypatch):
    """A run of no rollouts: ``sides`` made, and the check of its evaluation as it will end."""
    class Stubs:
        sides, checked = [], (512, 4)

    def make(*args):
        Stubs.sides.append(Side(*args))
        return Stubs.sides[-1]

    monkeypatch.setattr("mem_agent.training.rollout_side.RolloutSide", make)
    monkeypatch.setattr("mem_agent.training.trainer.Trainer", lambda config: None)
    monkeypatch.setattr(loop, "resume", lambda config, trainer: (config.num_rollout, 0))
    monkeypatch.setattr(loop, "sync", lambda side, trainer, version: side.calls.append(f"sync {version}"))
    monkeypatch.setattr(loop, "convert_last", lambda config: Path("hf/iter_0000001"))
    monkeypatch.setattr(Evaluation, "start_check", lambda self: SimpleNamespace(result=lambda: Stubs.checked))
    return Stubs


def test_a_run_evaluates_before_its_first_weights_and_after_its_last(stubs, tmp_path):
    config = Config(save_path=str(tmp_path), num_rollout=2, engine_max_len=256, hf_ckpt="/m")
    stubs.checked = (512, 4)
    assert loop.train(config, evaluate=True)
    [side] = stubs.sides
    assert side.evaluated.name == "before" and side.engine_len == 512
    assert side.calls == ["ready", "sync 2", "after-iter_0000001 iter_0000001", "closed"]


def test_what_is_complete_is_not_evaluated_again(stubs, tmp_path):
    stubs.checked = (512, 0)
    assert loop.train(Config(save_path=str(tmp_path), num_rollout=2), evaluate=True)
    assert stubs.sides[-1].evaluated is None and stubs.sides[-1].engine_len == 512


def test_without_an_evaluation_the_last_checkpoint_is_converted_alone(stubs, tmp_path):
    assert loop.train(Config(save_path=str(tmp_path), num_rollout=2), convert=True)
    assert stubs.sides[-1].evaluated is None and stubs.sides[-1].calls == ["ready", "sync 2", "closed"]


def test_a_run_that_had_ended_leaves_the_rest_to_its_caller(tmp_path, monkeypatch):
    config = Config(save_path=str(tmp_path), num_rollout=3)
    (tmp_path / "iter_0000002").mkdir()
    (tmp_path / "iter_0000002" / ".metadata").touch()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")
    monkeypatch.setattr(loop, "checked", lambda _: config)
    assert [loop.main(options) for options in ([], ["--convert"], ["--evaluate"])] == [0, 4, 4]


def test_engines_hold_what_rollouts_and_evaluation_need(tmp_path, monkeypatch):
    from mem_agent.training import rollout_side

    made = []

    class Served(Fleet):
        def __init__(self, config, *args, **kwargs):
            super().__init__()
            made.append(config.engine_max_len)

        async def start(self):
            pass

        stop = start

    monkeypatch.setattr(rollout_side, "Fleet", Served)
    (tmp_path / "train.jsonl").write_text('{"prompt": "q", "label": "a", "metadata": {"context": "c"}}\n')
    config = Config(save_path=str(tmp_path), train_data=str(tmp_path / "train.jsonl"), engine_max_len=256)
    for needed in (0, 100, 512):
        side = rollout_side.RolloutSide(config, None, needed)
        side.wait_until_ready()
        side.close()
    assert made == [256, 256, 512]
