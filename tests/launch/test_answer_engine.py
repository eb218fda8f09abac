"""ANSWER_CKPT: the hosts' file of models, and how GPUs are divided."""

from pathlib import Path

import pytest
import yaml

from mem_agent.config import Config, ConfigError
from mem_agent.hooks import answer_utility
from mem_agent.launch import launch
from mem_agent.launch import plan as planning
from mem_agent.tests.helpers.fake_host import make_model, settings

REWARD = {"AGENT": "chat", "TASK": "rank_sessions", "REWARD": "answer_utility"}


def plan(tmp_path, host="slime", **changes):
    model = make_model(tmp_path / "answer", "qwen2.5-7b")
    return planning.make_plan(
        Config.from_env(settings(tmp_path, host, **REWARD, **{"ANSWER_CKPT": str(model), **changes})))


@pytest.mark.parametrize(
    ("host", "key", "length"), [("slime", "sglang", "context_length"), ("vime", "vllm", "max_model_len")]
)
def test_the_file_names_both_models_the_policy_first(host, key, length, tmp_path, capsys):
    made = plan(tmp_path, host, ANSWER_GPUS="2", ANSWER_ENGINE_GPUS="2")
    policy, answer = yaml.safe_load(made.models)[key]
    told = [(model["name"], model["model_path"], model["update_weights"]) for model in (policy, answer)]
    assert told == [("policy", str(tmp_path / "model"), True), ("answer", str(tmp_path / "answer"), False)]
    assert [model["server_groups"][0]["num_gpus"] for model in (policy, answer)] == [6, 2]
    assert answer["server_groups"][0]["overrides"] == {length: 8192 * 3 // 2 + 2048 + 1024}
    launch.write_records(made)
    flag = made.arguments["engine"][made.arguments["engine"].index(f"--{key}-config") + 1]
    assert Path(flag).read_text() == made.models
    launch.print_plan(made)
    assert "update_weights: false" in capsys.readouterr().out


def test_a_model_that_reads_less_is_served_for_what_it_reads(tmp_path):
    assert answer_utility.answer_length(Config(answer_ckpt=str(make_model(tmp_path, "qwen2.5-7b")))) == 15360
    long = Config(answer_ckpt=str(tmp_path), answer_budget=100_000)
    assert answer_utility.answer_length(long) == 32768
    assert answer_utility.answer_length(Config(answer_ckpt="hub/id", answer_budget=100)) == 150 + 2048 + 1024


def test_an_address_needs_no_second_model(tmp_path):
    made = plan(tmp_path, ANSWER_CKPT="", ANSWER_URL="http://10.0.0.9:8000", ANSWER_MODEL="m")
    assert made.models == "" and "--sglang-config" not in made.command


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ANSWER_GPUS": "8", "ANSWER_ENGINE_GPUS": "8"}, "ANSWER_GPUS=8 leaves 0 of 8 GPUs"),
        ({"ANSWER_GPUS": "3"}, "ANSWER_GPUS=3 leaves 5 of 8 GPUs that sample for the policy, whose engines take 2"),
        ({"ANSWER_GPUS": "4", "ANSWER_ENGINE_GPUS": "3"}, "ANSWER_ENGINE_GPUS=3 does not divide ANSWER_GPUS=4"),
        ({"ANSWER_CKPT": "/nowhere"}, "ANSWER_CKPT='/nowhere'"),
    ],
)
def test_gpus_that_cannot_be_divided_are_told(changes, said, tmp_path):
    with pytest.raises(ConfigError, match=said):
        plan(tmp_path, ENGINE_GPUS="2", **changes)
