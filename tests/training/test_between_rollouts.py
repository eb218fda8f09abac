"""EVAL_INTERVAL in the embedded host: when it asks, whose answers count, and what a failure does to the run."""

import asyncio
import json
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mem_agent.config import Config
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.training import between_rollouts as module
from mem_agent.training.between_rollouts import (
    check_of_questions,
    evaluate_between,
    evaluates_after,
    weights_mark,
)
from mem_agent.training.evaluation import Evaluation

POCKET = Path(__file__).parents[2] / "pocket"
WEIGHTS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(1)}
READS = {"engine_max_len": 256, "mem_chunk_tokens": 32, "mem_max_memory": 8, "mem_max_final": 12,
         "mem_max_question": 16, "mem_prompts": str(POCKET / "prompts.yaml"), "hf_ckpt": str(POCKET / "start")}


class Fleet:
    """Engines that are a router's; it counts how often their caches were dropped."""

    def __init__(self, config, url="http://127.0.0.1:9", error=None):
        self.config, self.url, self.error, self.emptied = config, url, error, 0
        self.restarts, self.dead = 0, 0

    async def ensure_alive(self, hung_after_s):
        if self.error:
            raise self.error
        self.restarts, dead, self.dead = self.restarts + self.dead, self.dead, 0
        return dead

    async def start_over(self):
        self.emptied += 1


def run_config(tmp_path, **settings):
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    values = READS | {"save_path": str(tmp_path / "run"), "data_root": str(tmp_path), "length": "1",
                      "eval_interval": 2, "base_url": "http://127.0.0.1:1"}
    return Config(**(values | settings))


def turns(router):
    """Requests but for those by which the client gets to know a server."""
    return sum("seed" in request["sampling_params"] for request in router.requests)


@pytest.mark.parametrize("interval,rollouts", [(0, []), (1, [0, 1, 2, 3, 4, 5]), (2, [1, 3, 5]), (4, [3])])
def test_every_nth_rollout(interval, rollouts):
    config = Config(eval_interval=interval, data_root="d" if interval else "")
    assert [number for number in range(6) if evaluates_after(config, number)] == rollouts


def test_a_mark_tells_weights_apart_and_nothing_else():
    mark = weights_mark(WEIGHTS)
    assert mark == weights_mark({name: WEIGHTS[name].clone() for name in ("b", "a")})
    changed = WEIGHTS["a"].clone()
    changed[1, 2] += 1e-6
    assert mark != weights_mark(WEIGHTS | {"a": changed})
    assert weights_mark({"a": torch.ones(2, dtype=torch.bfloat16)})


def test_questions_are_asked_by_the_client_and_answers_of_other_weights_put_aside(tmp_path):
    """The real client under the run's own settings, whatever the environment holds."""
    config = run_config(tmp_path)
    router = FakeRouter(default=[5])
    with running_beside(router):
        fleet = Fleet(config, f"http://127.0.0.1:{router.port}")
        metrics = asyncio.run(evaluate_between(config, fleet, 1, WEIGHTS))
        asked = turns(router)
        again = asyncio.run(evaluate_between(config, fleet, 1, WEIGHTS))
        assert asked == turns(router) == 2  # all answers were there
        other = asyncio.run(evaluate_between(config, fleet, 1, WEIGHTS | {"b": torch.zeros(1)}))
    assert metrics["eval/1/sub_em"] == 0.0 and metrics["eval/1/questions"] == 1.0
    assert metrics["eval/1/turns"] == 2.0 and metrics["seconds/evaluation"] > 0
    assert {k: v for k, v in again.items() if k.startswith("eval")} == {
        k: v for k, v in other.items() if k.startswith("eval")} == {
        k: v for k, v in metrics.items() if k.startswith("eval")}
    folders = sorted(path.name for path in (tmp_path / "run" / "eval").iterdir())
    assert folders == ["during-iter_0000001", "during-iter_0000001.1"] and fleet.emptied == 3
    made_by = json.loads((tmp_path / "run" / "eval" / folders[1] / "run.json").read_text())["model"]
    assert made_by.endswith(f" {weights_mark(WEIGHTS)}")


def test_an_evaluation_that_fails_does_not_end_the_run(tmp_path, monkeypatch, caplog):
    config = run_config(tmp_path)

    class Broken(Evaluation):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.command = [sys.executable, "-c", "import sys; sys.exit('error: /d/eval_1.json: no such file')"]

    monkeypatch.setattr(module, "Evaluation", Broken)
    found = asyncio.run(evaluate_between(config, Fleet(config), 1, WEIGHTS))
    assert found["eval_failed"] == 1.0 and not any(name.startswith("eval/") for name in found)
    assert "error: /d/eval_1.json: no such file; the run goes on" in caplog.text


ROW = {"prompt": "what?", "label": "silver", "metadata": {"context": "metal silver", "ground_truth": ["silver"]}}


def test_rows_of_a_file_are_asked_through_the_hooks(tmp_path, caplog):
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(ROW)}\n" * 3)
    config = run_config(tmp_path, eval_data=str(tmp_path / "dev.jsonl"), val_samples=2, val_temperature=0.5)
    caplog.set_level(logging.INFO, logger="mem_agent")
    router = FakeRouter(default=[5])
    with running_beside(router):
        fleet = Fleet(config, f"http://127.0.0.1:{router.port}")
        metrics = asyncio.run(evaluate_between(config, fleet, 3, WEIGHTS))
    assert metrics["eval/dev/reward"] == metrics["eval/dev/accuracy"] == 0.0
    assert metrics["eval/dev/trajectories"] == 6.0 and metrics["eval/dev/best@2"] == 0.0
    assert all(name.count("/") == 2 for name in metrics if name.startswith("eval/"))
    assert "evaluation after rollout 4/100 | dev: reward 0.000 | " in caplog.text and fleet.emptied == 1
    sampling = [request["sampling_params"] for request in router.requests]
    assert {each["temperature"] for each in sampling} == {0.5} and len({each["seed"] for each in sampling}) == 12


def test_an_evaluation_that_a_dead_engine_spoilt_is_asked_again_with_empty_caches(tmp_path, caplog):
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(ROW)}\n" * 3)
    config = run_config(tmp_path, eval_data=str(tmp_path / "dev.jsonl"), mem_max_retries=0)
    router = FakeRouter(script=[503], default=[5])
    with running_beside(router):
        fleet = Fleet(config, f"http://127.0.0.1:{router.port}")
        fleet.dead = 1
        metrics = asyncio.run(evaluate_between(config, fleet, 3, WEIGHTS))
    assert metrics["eval/dev/failed"] == 0.0 and fleet.emptied == 2
    assert "the evaluation after rollout 4 is asked again: a server had to be replaced" in caplog.text


def test_files_and_engine_length_are_known_before_anything_starts(tmp_path):
    config = run_config(tmp_path)
    check = check_of_questions(config)
    assert check is not None and check.result() == (256, 1)
    assert not (tmp_path / "run").exists()
    assert check_of_questions(replace(config, eval_interval=0)) is None
    assert check_of_questions(replace(config, eval_data="dev.jsonl")) is None


@pytest.mark.parametrize("loss,calls", [("grpo", ["evaluate 3"]), ("sft", ["sync 4", "evaluate 3"])])
def test_engines_that_no_rollout_gives_weights_get_them_to_be_evaluated(loss, calls, tmp_path, monkeypatch):
    from mem_agent.training import side as sides

    said = []

    async def evaluated(config, fleet, number, tensors):
        said.append(f"evaluate {number}")
        return {"eval/1/sub_em": 0.5}

    class Engines:
        async def start(self):
            pass

        async def sync_weights(self, tensors, version):
            assert tensors is WEIGHTS
            said.append(f"sync {version}")

        stop = start

    class Between(sides.Side):
        async def _sample(self, number, first_group):
            raise AssertionError("nothing is sampled here")

        def sync(self, tensors, version):
            raise AssertionError("nor synced")

    monkeypatch.setattr(sides, "evaluate_between", evaluated)
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(ROW)}\n")
    config = run_config(tmp_path, loss=loss, train_data=str(tmp_path / "train.jsonl"))
    side = Between(config, Engines())
    assert side.evaluate_policy(3, WEIGHTS) == {"eval/1/sub_em": 0.5} and said == calls
    side.close()
