"""The Memory-R recipes are the published commands: steps, batches and what differs between the models."""

import math
from pathlib import Path

import pytest

from mem_agent.config import Config, variable_names
from mem_agent.tests.helpers.fake_host import recipe

RECIPES = Path(__file__).parents[2] / "recipes"
ROWS, PROMPTS, REPLIES = 7473, 16, 16
# model -> epochs of GSM8K's training rows, tokens of a reply, shots
PUBLISHED = {
    "qwen2.5-0.5b": (1, 200, 0), "llama-3.2-1b": (1, 200, 1), "falcon3-1b": (1, 200, 0), "smollm2-1.7b": (2, 200, 0),
    "qwen2.5-1.5b": (1, 300, 0),
}
INTRINSIC = {"MEM_IR", "MEM_IR_K"}


def test_there_is_one_for_each_published_command():
    assert {path.stem.removeprefix("memory-r-") for path in RECIPES.glob("memory-r-*.env")} == set(PUBLISHED)
    page = (RECIPES / "README.md").read_text()
    assert all(f"(memory-r-{name}.md)" in page and (RECIPES / f"memory-r-{name}.md").is_file() for name in PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_the_published_steps_and_batches(name):
    epochs, reply, shots = PUBLISHED[name]
    values = recipe(f"memory-r-{name}")
    assert set(values) - INTRINSIC <= set(variable_names())
    config = Config.from_env({k: v for k, v in values.items() if k not in INTRINSIC})
    assert (config.rollout_batch_size, config.n_samples_per_prompt) == (PROMPTS, REPLIES)
    assert config.step_trajectories == config.trajectories_per_rollout == PROMPTS * REPLIES
    assert config.num_rollout == epochs * (ROWS // PROMPTS)
    assert config.lr_warmup_steps == math.ceil(0.1 * config.num_rollout)
    assert (config.mem_max_final, config.agent, config.task) == (reply, "chat", "gsm8k")
    page = (RECIPES / f"memory-r-{name}.md").read_text()
    assert ("--shots 1" in page) == bool(shots) and "Nothing of this size was trained or evaluated by us" in page


def test_what_all_have_in_common_is_alike():
    per_model = {"NUM_ROLLOUT", "LR_WARMUP_STEPS", "MEM_MAX_FINAL"}
    common = [{k: v for k, v in recipe(f"memory-r-{name}").items() if k not in per_model} for name in PUBLISHED]
    assert all(one == common[0] for one in common)
    rates = {"LR": "5e-6", "KL_COEF": "0.04", "TEMPERATURE": "0.9", "CLIP_GRAD": "0.1", "ADAM_BETA2": "0.99"}
    assert rates.items() <= common[0].items() and common[0]["MEM_IR"] == "knn+"
