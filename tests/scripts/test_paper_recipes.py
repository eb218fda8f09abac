"""The recipes of Memory-R and MemSifter are the published commands, and their tables say what was not run."""

import math
import re
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.hooks.rewards import load_reward
from mem_agent.tests.helpers.fake_host import OUTSIDE, recipe

RECIPES = Path(__file__).parents[2] / "recipes"
PAGE = (RECIPES / "README.md").read_text()
NAMES = set(map(str.upper, Config.model_fields))
ROWS, PROMPTS, REPLIES = 7473, 16, 16
# model -> epochs of GSM8K's training rows, tokens of a reply, shots
PUBLISHED = {
    "Qwen2.5-0.5B": (1, 200, 0), "Llama-3.2-1B": (1, 200, 1), "Falcon3-1B": (1, 200, 0), "SmolLM2-1.7B": (2, 200, 0),
    "Qwen2.5-1.5B": (1, 300, 0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_memory_r_has_the_steps_and_batches_of_each_published_command(name):
    epochs, reply, shots = PUBLISHED[name]
    row = next(line for line in PAGE.splitlines() if line.startswith("| ") and f"{name}-Instruct" in line)
    values = recipe("memory-r") | dict(re.findall(r"([A-Z_]+)=(\d+)", row))
    assert set(values) <= NAMES and ("--shots 1" in row) == bool(shots)
    config = Config.from_env(values)
    assert config.step_trajectories == config.trajectories_per_rollout == PROMPTS * REPLIES
    assert config.num_rollout == epochs * (ROWS // PROMPTS)
    assert config.lr_warmup_steps == math.ceil(0.1 * config.num_rollout)
    assert (config.mem_max_final, config.agent, config.task, config.mem_ir) == (reply, "chat", "gsm8k", "knn+")
    rates = {"LR": "5e-6", "KL_COEF": "0.04", "TEMPERATURE": "0.9", "CLIP_GRAD": "0.1", "ADAM_BETA2": "0.99"}
    assert rates.items() <= values.items()


def test_memsifter_is_the_released_task_reward_round():
    """``qwen3_4b_task_reward.sh``, plageon/MemSifter 92f0eae."""
    name = "memsifter-qwen3-4b"
    assert set(recipe(name)) <= NAMES
    config = Config.from_env({**recipe(name), **OUTSIDE[name]})
    assert (config.rollout_batch_size, config.n_samples_per_prompt, config.groups_in_flight) == (16, 6, 32)
    assert config.step_trajectories == 6 and config.num_rollout == 6650 // 16
    assert (config.mem_max_question, config.mem_max_final) == (132 * 1024, 16 * 1024)
    assert (config.eps_clip, config.eps_clip_high, config.eps_clip_c) == (0.2, 0.28, 10)
    assert (config.lr, config.weight_decay, config.clip_grad, config.kl_coef) == (1e-6, 0.1, 1.0, 0.0)
    assert config.adv_std and config.loss_agg == "token" and config.temperature == 1
    assert "--use-tis" in config.host_args
    reward = load_reward(config).settings
    assert (reward.tiers, reward.overlong_buffer, reward.overlong_penalty) == ("1,2,3,5,8,10", 4 * 1024, 1.0)
    answering = (reward.temperature, reward.max_tokens, reward.concurrency, reward.budget)
    assert answering == (0.3, 4096, 32, 8192)
