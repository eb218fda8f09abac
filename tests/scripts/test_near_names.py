"""What is nearly a setting is told with the setting that is meant."""

import os
import subprocess
import sys

import pytest

from mem_agent.__main__ import near_misses
from mem_agent.config import Config

SETTINGS = [name.upper() for name in Config.model_fields]


@pytest.mark.parametrize(("name", "meant"), [
    ("ROLLOUT_BATCH_SZE", "ROLLOUT_BATCH_SIZE"), ("MEM_CHUNK_TOKEN", "MEM_CHUNK_TOKENS"),
    ("NUM_ROLOUT", "NUM_ROLLOUT"), ("NUM_ROLLOUTS", "NUM_ROLLOUT"), ("KL_COEFF", "KL_COEF"),
])
def test_a_letter_too_few_too_many_or_another_is_told(name, meant):
    assert near_misses([name]) == [(name, meant)]


def test_settings_and_other_programs_variables_are_not():
    others = (
        "PATH HOME LANG CUDA_VISIBLE_DEVICES VLLM_USE_V1 HF_TOKEN SAVE_FILE MODEL_PATH RESULTS LENGTHS METHOD DATASET "
        "TRACKERS RAY_ADDRESS MASTER_PORT OMP_NUM_THREADS API_KEY ANSWER_KEY _ NUM_ROLL\x1bOUT"
    ).split()
    assert near_misses([*SETTINGS, *others, ""]) == []


def test_a_command_says_so_and_goes_on():
    command = [sys.executable, "-P", "-m", "mem_agent", "eval", "--help"]
    alike = {name for name, _ in near_misses(os.environ)}
    env = {name: value for name, value in os.environ.items() if name not in alike} | {"EVAL_SAMPLE": "3"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.startswith("warning: EVAL_SAMPLE ") and "EVAL_SAMPLES" in done.stderr
