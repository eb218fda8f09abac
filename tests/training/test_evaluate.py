"""Evaluations of a run on its own engines, in its own process: when they go on, what ends them, what they leave."""

import asyncio
import json
from contextlib import nullcontext

import pytest

from mem_agent import eval_ruler_hqa
from mem_agent.tests.helpers.fake_router import running_beside
from mem_agent.tests.training.test_rollouts import POCKET, FakeFleet, pocket_config
from mem_agent.training import evaluate
from mem_agent.training.evaluate import evaluate_alone, evaluate_between, evaluate_model

ROW = {"prompt": "what?", "label": "silver", "metadata": {"context": "metal silver", "ground_truth": ["silver"]}}


@pytest.fixture
def config(tmp_path):
    """Of a run that evaluates; its environment names somebody else's server."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(ROW)}\n" * 3)
    return pocket_config(tmp_path, data_root=str(tmp_path), length="1", eval_interval=2, base_url="http://127.0.0.1:1")


@pytest.fixture
def fleet():
    fleet = FakeFleet(repairs=())
    with running_beside(fleet.router):
        yield fleet


def turns(fleet):
    """Sampling parameters of all requests except those by which the client gets to know a server."""
    found = [request["sampling_params"] for request in fleet.router.requests]
    return [each for each in found if "seed" in each]


def test_a_model_is_evaluated_once_and_what_is_complete_is_not_asked_again(config, fleet, monkeypatch, capsys):
    monkeypatch.setattr(eval_ruler_hqa, "LOOK_EVERY_S", 0.01)
    fleet.router.delay = 0.2
    for _ in range(2):
        asyncio.run(evaluate_model(config, fleet, "before", POCKET / "start"))
        assert "| before | 1 | 1 | 0 | 0 |" in capsys.readouterr().out
        assert len(turns(fleet)) == 2 and len(fleet.calls) > 1
    started = []
    monkeypatch.setattr(evaluate, "Fleet", lambda config, model: started.append(model) or nullcontext(fleet))
    asyncio.run(evaluate_alone(config, {"before": POCKET / "start", "after": POCKET / "start"}))
    assert len(started) == 1 and len(turns(fleet)) == 4


def test_questions_between_rollouts_are_scored_and_a_failure_does_not_end_the_run(config, fleet, tmp_path, caplog):
    for weights in ("a", "a", "b"):  # what a killed run left is not asked again, and of other weights removed
        metrics = asyncio.run(evaluate_between(config, fleet, 1, weights))
    assert metrics["eval/1/sub_em"] == 0.0 and metrics["eval/1/questions"] == 1.0 and metrics["eval/1/turns"] == 2.0
    assert len(turns(fleet)) == 4 and fleet.calls.count("start over") == 3
    (tmp_path / "eval_1.json").unlink()
    assert asyncio.run(evaluate_between(config, fleet, 3, "c"))["eval_failed"] == 1.0 and "eval_1.json" in caplog.text


def test_rows_of_a_file_are_asked_through_the_hooks_and_again_where_an_engine_died(config, fleet, tmp_path):
    config = config.replace(eval_data=str(tmp_path / "dev.jsonl"), eval_samples=2, eval_temperature=0.5)
    fleet.router.script, fleet.repairs = [503], [1]
    metrics = asyncio.run(evaluate_between(config, fleet, 3, "a"))
    assert metrics["eval/dev/reward"] == metrics["eval/dev/accuracy"] == metrics["eval/dev/failed"] == 0.0
    assert metrics["eval/dev/trajectories"] == 6.0 and fleet.calls.count("start over") == 2
    assert {each["temperature"] for each in turns(fleet)} == {0.5}
    assert len({each["seed"] for each in turns(fleet)}) == 12
