"""Evaluations of a run on its own engines, in its own process: when they go on, what ends them, what they leave."""

import asyncio
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from mem_agent import eval_ruler_hqa
from mem_agent.checkpoints import convert
from mem_agent.config import Config
from mem_agent.evaluation.questions import EvalError
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.training import train as loop
from mem_agent.training.evaluate import check_before, evaluate_between, evaluate_model

POCKET = Path(__file__).parents[2] / "pocket"
READS = {"engine_max_len": 256, "mem_chunk_tokens": 32, "mem_max_memory": 8, "mem_max_final": 12,
         "mem_max_question": 16, "mem_prompts": str(POCKET / "prompts.yaml"), "hf_ckpt": str(POCKET / "start")}
ROW = {"prompt": "what?", "label": "silver", "metadata": {"context": "metal silver", "ground_truth": ["silver"]}}


class Fleet:
    """Engines that are a router's; it counts how often their caches were dropped."""

    def __init__(self, router, dead=0, error=None):
        self.url, self.error, self.dead = f"http://127.0.0.1:{router.port}", error, dead
        self.emptied, self.restarts, self.looks = 0, 0, 0

    async def ensure_alive(self, hung_after_s):
        self.looks += 1
        if self.error:
            raise self.error
        self.restarts, self.dead = self.restarts + self.dead, 0

    async def start_over(self):
        self.emptied += 1


@pytest.fixture
def config(tmp_path):
    """Of a run that evaluates; its environment names somebody else's server."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(ROW)}\n" * 3)
    values = READS | {"save_path": str(tmp_path / "run"), "data_root": str(tmp_path), "length": "1",
                      "eval_interval": 2, "base_url": "http://127.0.0.1:1"}
    return Config(**values)


@pytest.fixture
def router():
    router = FakeRouter(default=[5])
    with running_beside(router):
        yield router


def turns(router):
    """Requests but for those by which the client gets to know a server."""
    return sum("seed" in request["sampling_params"] for request in router.requests)


def test_a_model_is_evaluated_once_and_what_is_complete_is_not_asked_again(config, router, monkeypatch):
    monkeypatch.setattr(eval_ruler_hqa, "LOOK_EVERY_S", 0.01)
    check_before(config)
    fleet, router.delay = Fleet(router), 0.2
    for _ in range(2):
        table = asyncio.run(evaluate_model(config, fleet, "before", POCKET / "start"))
        assert "| before | 1 | 1 | 0 | 0 |" in table and turns(router) == 2 and fleet.looks > 1
    with pytest.raises(EvalError, match="SEED"):
        check_before(config.replace(seed=9))
    with pytest.raises(FleetError):  # engines that cannot be kept alive
        asyncio.run(evaluate_model(config, Fleet(router, error=FleetError("none is left")), "after", POCKET / "start"))


def test_questions_are_asked_once_and_answers_of_other_weights_removed(config, router, tmp_path, caplog):
    fleet = Fleet(router)
    metrics = asyncio.run(evaluate_between(config, fleet, 1))
    assert metrics["eval/1/sub_em"] == 0.0 and metrics["eval/1/questions"] == 1.0
    assert metrics["eval/1/turns"] == 2.0 and metrics["seconds/evaluation"] > 0
    again = asyncio.run(evaluate_between(config, fleet, 1))
    assert turns(router) == 2 and fleet.emptied == 2
    assert {**again, "seconds/evaluation": 0} == {**metrics, "seconds/evaluation": 0}
    asyncio.run(evaluate_between(config.replace(lr=1e-3), fleet, 1))  # a run that was set back
    assert turns(router) == 4
    assert [path.name for path in (tmp_path / "run" / "eval").iterdir()] == ["during-iter_0000001"]
    (tmp_path / "eval_1.json").unlink()  # the run goes on
    assert asyncio.run(evaluate_between(config, fleet, 3))["eval_failed"] == 1.0 and "eval_1.json" in caplog.text


def test_rows_of_a_file_are_asked_through_the_hooks_and_again_where_an_engine_died(config, router, tmp_path, caplog):
    config = config.replace(eval_data=str(tmp_path / "dev.jsonl"), eval_samples=2, eval_temperature=0.5)
    caplog.set_level(logging.INFO, logger="mem_agent")
    router.script = [503]
    fleet = Fleet(router, dead=1)
    metrics = asyncio.run(evaluate_between(config, fleet, 3))
    assert metrics["eval/dev/reward"] == metrics["eval/dev/accuracy"] == metrics["eval/dev/failed"] == 0.0
    assert metrics["eval/dev/trajectories"] == 6.0 and metrics["eval/dev/best@2"] == 0.0
    assert all(name.count("/") == 2 for name in metrics if name.startswith("eval/"))
    assert "4/100 | dev: reward 0.000 | " in caplog.text and fleet.emptied == 2
    sampling = [request["sampling_params"] for request in router.requests]
    assert {each["temperature"] for each in sampling} == {0.5} and len({each["seed"] for each in sampling}) == 12


# --- in a run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss,evaluates,given", [("grpo", False, True), ("sft", False, False), ("sft", True, True)])
def test_under_sft_engines_get_weights_only_to_be_evaluated(loss, evaluates, given, config):
    weights, sent = {"a": object()}, []
    source = SimpleNamespace(sync=lambda tensors, version: sent.append((tensors, version)))
    loop.sync(source, SimpleNamespace(config=config.replace(loss=loss), export_hf=lambda: weights), 4,
              evaluates=evaluates)
    assert sent == [(weights, 4)] * given


class Source:
    """Rollouts that write down what is asked of them."""

    made: "Source"

    def __init__(self, config, evaluate=False):
        self.calls, Source.made = ["before"] * evaluate, self

    def begin(self):
        self.calls.append("ready")

    def evaluate(self, name, model):
        self.calls.append(f"{name} {model.name}")

    def close(self):
        self.calls.append("closed")


@pytest.mark.parametrize("options,calls", [
    ({"evaluate": True}, ["before", "ready", "sync 2", "converted", "after-iter_0000001 iter_0000001", "closed"]),
    ({"convert": True}, ["ready", "sync 2", "converted", "closed"]),
    ({}, ["ready", "sync 2", "closed"]),
])
def test_a_run_evaluates_before_its_first_weights_and_after_its_last(options, calls, config, monkeypatch):
    monkeypatch.setattr(loop, "Rollouts", Source)
    monkeypatch.setattr("mem_agent.training.trainer.Trainer", lambda config: None)
    monkeypatch.setattr(loop, "resume", lambda config, trainer: (config.num_rollout, 0))
    monkeypatch.setattr(loop, "sync", lambda source, trainer, version: source.calls.append(f"sync {version}"))
    monkeypatch.setattr(loop, "latest", lambda folder: Path("iter_0000001"))
    monkeypatch.setattr(convert, "convert", lambda *_, **__: Source.made.calls.append("converted"))
    assert loop.train(config.replace(num_rollout=2), **options)
    assert Source.made.calls == calls


def test_a_run_that_had_ended_leaves_the_rest_to_its_caller(config, tmp_path, monkeypatch):
    config = config.replace(save_path=str(tmp_path), num_rollout=3)
    (tmp_path / "iter_0000002").mkdir()
    monkeypatch.setattr(loop, "checked", lambda _: config)
    assert [loop.main(options) for options in ([], ["--convert"], ["--evaluate"])] == [0, 4, 4]
