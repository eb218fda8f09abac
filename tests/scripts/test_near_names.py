"""What is nearly a setting is told with the setting that is meant."""

import os

import pytest

from mem_agent import __main__ as entry
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


def test_a_command_says_so_and_goes_on(monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(os, "environ", {"EVAL_SAMPLE": "3"})
    monkeypatch.setattr(entry, "settle_process", lambda: None)
    monkeypatch.setattr(entry.runpy, "run_module", lambda name, **_: ran.append(name))
    monkeypatch.setattr("sys.argv", ["mem-agent"])
    assert entry.main(["eval", "--help"]) == 0 and len(ran) == 1
    said = capsys.readouterr().err
    assert said.startswith("warning: EVAL_SAMPLE ") and "EVAL_SAMPLES" in said
