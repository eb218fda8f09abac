"""The Memory-R recipe is the published command, and its page says what other models change."""

import math
import re
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.tests.helpers.fake_host import recipe

PAGE = (Path(__file__).parents[2] / "recipes" / "memory-r.md").read_text()
ROWS, PROMPTS, REPLIES = 7473, 16, 16
# model -> epochs of GSM8K's training rows, tokens of a reply, shots
PUBLISHED = {
    "Qwen2.5-0.5B": (1, 200, 0), "Llama-3.2-1B": (1, 200, 1), "Falcon3-1B": (1, 200, 0), "SmolLM2-1.7B": (2, 200, 0),
    "Qwen2.5-1.5B": (1, 300, 0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_steps_and_batches_of_each_published_command(name):
    epochs, reply, shots = PUBLISHED[name]
    row = next(line for line in PAGE.splitlines() if line.startswith("| ") and f"{name}-Instruct" in line)
    values = recipe("memory-r") | dict(re.findall(r"([A-Z_]+)=(\d+)", row))
    assert set(values) <= set(map(str.upper, Config.model_fields)) and ("--shots 1" in row) == bool(shots)
    config = Config.from_env(values)
    assert config.step_trajectories == config.trajectories_per_rollout == PROMPTS * REPLIES
    assert config.num_rollout == epochs * (ROWS // PROMPTS)
    assert config.lr_warmup_steps == math.ceil(0.1 * config.num_rollout)
    assert (config.mem_max_final, config.agent, config.task, config.mem_ir) == (reply, "chat", "gsm8k", "knn+")


def test_the_rates_are_published_and_the_page_says_that_it_was_not_run():
    rates = {"LR": "5e-6", "KL_COEF": "0.04", "TEMPERATURE": "0.9", "CLIP_GRAD": "0.1", "ADAM_BETA2": "0.99"}
    assert rates.items() <= recipe("memory-r").items()
    assert "Nothing of this size was trained or evaluated by us" in PAGE
