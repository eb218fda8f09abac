"""Evaluations of a run on its own engines, in its own process: when they go on, what ends them, what they leave."""

import asyncio
import json
import logging
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from mem_agent import eval_ruler_hqa
from mem_agent.checkpoints import convert
from mem_agent.config import Config
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.training import evaluate, train
from mem_agent.training.evaluate import evaluate_alone, evaluate_between, evaluate_model

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
    """Requests except those by which the client gets to know a server."""
    return sum("seed" in request["sampling_params"] for request in router.requests)


def test_a_model_is_evaluated_once_and_what_is_complete_is_not_asked_again(config, router, monkeypatch, capsys):
    monkeypatch.setattr(eval_ruler_hqa, "LOOK_EVERY_S", 0.01)
    fleet, router.delay = Fleet(router), 0.2
    for _ in range(2):
        asyncio.run(evaluate_model(config, fleet, "before", POCKET / "start"))
        assert "| before | 1 | 1 | 0 | 0 |" in capsys.readouterr().out and turns(router) == 2 and fleet.looks > 1
    started = []
    monkeypatch.setattr(evaluate, "Fleet", lambda config, model: started.append(model) or nullcontext(fleet))
    asyncio.run(evaluate_alone(config, {"before": POCKET / "start", "after": POCKET / "start"}))
    assert len(started) == 1 and turns(router) == 4
    with pytest.raises(FleetError):  # engines that cannot be kept alive
        asyncio.run(evaluate_model(config, Fleet(router, error=FleetError("none is left")), "x", POCKET / "start"))


def test_questions_between_rollouts_are_scored_and_a_failure_does_not_end_the_run(config, router, tmp_path, caplog):
    fleet = Fleet(router)
    for weights in ("a", "a", "b"):  # what a killed run left is not asked again, and of other weights removed
        metrics = asyncio.run(evaluate_between(config, fleet, 1, weights))
    assert metrics["eval/1/sub_em"] == 0.0 and metrics["eval/1/questions"] == 1.0 and metrics["eval/1/turns"] == 2.0
    assert turns(router) == 4 and fleet.emptied == 3
    (tmp_path / "eval_1.json").unlink()
    assert asyncio.run(evaluate_between(config, fleet, 3, "c"))["eval_failed"] == 1.0 and "eval_1.json" in caplog.text


def test_rows_of_a_file_are_asked_through_the_hooks_and_again_where_an_engine_died(config, router, tmp_path, caplog):
    config = config.replace(eval_data=str(tmp_path / "dev.jsonl"), eval_samples=2, eval_temperature=0.5)
    caplog.set_level(logging.INFO, logger="mem_agent")
    router.script = [503]
    fleet = Fleet(router, dead=1)
    metrics = asyncio.run(evaluate_between(config, fleet, 3, "a"))
    assert metrics["eval/dev/reward"] == metrics["eval/dev/accuracy"] == metrics["eval/dev/failed"] == 0.0
    assert metrics["eval/dev/trajectories"] == 6.0
    assert "4/100 | dev: reward 0.000" in caplog.text and fleet.emptied == 2
    sampling = [request["sampling_params"] for request in router.requests]
    assert {each["temperature"] for each in sampling} == {0.5} and len({each["seed"] for each in sampling}) == 12


# --- in a run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss,evaluates,given", [("grpo", False, True), ("sft", False, False), ("sft", True, True)])
def test_under_sft_engines_get_weights_only_to_be_evaluated(loss, evaluates, given, config):
    weights, sent = {"a": object()}, []
    source = SimpleNamespace(sync=lambda tensors, version: sent.append((tensors, version)))
    trainer = SimpleNamespace(config=config.replace(loss=loss), export_hf=lambda: weights)
    train.sync(source, trainer, 4, evaluates=evaluates)
    assert sent == [(weights, 4)] * given


@pytest.mark.parametrize("done,options,expected", [
    (0, {"evaluate": True}, ["before", "trained", "converted", "after-iter_0000001", "table", "closed"]),
    (0, {"convert": True}, ["trained", "converted", "closed"]),
    (0, {}, ["trained", "closed"]),
    (2, {"evaluate": True}, ["converted", "alone before after-iter_0000001", "table"]),  # an earlier start trained
])
def test_what_stands_before_and_behind_training(done, options, expected, config, tmp_path, monkeypatch):
    calls, run = [], tmp_path / "run"

    class Source:
        def __init__(self, config, evaluate=False):
            calls.extend(["before"] * evaluate)

        def evaluate(self, name, model):
            calls.append(name)

        def close(self):
            calls.append("closed")

    def trained(config, source):
        calls.append("trained")
        (run / "iter_0000001").mkdir(parents=True)

    async def alone(config, models):
        calls.append(f"alone {' '.join(models)}")

    if done:
        (run / "iter_0000001").mkdir(parents=True)
    monkeypatch.setattr(train, "Rollouts", Source)
    monkeypatch.setattr(train, "train_rollouts", trained)
    monkeypatch.setattr(train, "evaluate_alone", alone)
    monkeypatch.setattr(train, "tables", lambda results: calls.append("table"))
    monkeypatch.setattr(train, "add_evaluation", lambda model, results: None)
    monkeypatch.setattr(convert, "convert", lambda *_, **__: calls.append("converted"))
    model = train.train(config.replace(num_rollout=2), **options)
    assert calls == expected and model == (run / "hf" / "iter_0000001" if options else None)
