"""What of HOST_ARGS the launcher reads, and what it refuses."""

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.launch.host_args import ENGINE_MEMORY, Division, check, divide


def given(text):
    return Config(host="slime", host_args=text)


@pytest.mark.parametrize("text,division,rest", [
    ("", Division(), []),
    ("--lr 5e-6 --context-parallel-size 2", Division(cp=2), ["--lr", "5e-6"]),
    ("--pipeline-model-parallel-size=2 --use-tis", Division(pp=2), ["--use-tis"]),
    ("--rollout-num-gpus 6 --rollout-num-gpus 4", Division(rollout_gpus=4), []),  # the last one wins
    ("--rollout-num-gpus-per-engine 2 --x 'a b'", Division(engine_gpus=2), ["--x", "a b"]),
    ("--sglang-mem-fraction-static 0.6", Division(engine_memory=0.6), []),
    ("--vllm-gpu-memory-utilization 0.5", Division(engine_memory=0.5), []),
    ("--context-parallel 2", Division(), ["--context-parallel", "2"]),  # the hosts know no abbreviations either
])
def test_the_flags_of_the_division_are_read_and_the_others_left(text, division, rest):
    assert divide(given(text)) == (division, rest)


def test_an_engine_has_its_share_of_memory_without_a_flag():
    assert divide(given("--use-tis"))[0].engine_memory == ENGINE_MEMORY


@pytest.mark.parametrize("text", [
    "--x 'y", "--context-parallel-size two", "--rollout-num-gpus", "--lr 1 --partial-rollout", "--rollout-top-p=0.9",
    "--tensor-model-parallel-size 2", "--max-tokens-per-gpu 9000", "--wandb-key secret",
])
def test_what_cannot_be_given_names_the_setting(text):
    with pytest.raises(ConfigError, match="HOST_ARGS"):
        check(given(text))
