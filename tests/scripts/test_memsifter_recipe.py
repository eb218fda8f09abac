"""The MemSifter recipe is the released task-reward round (``qwen3_4b_task_reward.sh``, plageon/MemSifter 92f0eae)."""

from pathlib import Path

from mem_agent.config import Config
from mem_agent.hooks.rewards import load_reward
from mem_agent.tests.helpers.fake_host import OUTSIDE, recipe

NAME = "memsifter-qwen3-4b"
PAGE = (Path(__file__).parents[2] / "recipes" / f"{NAME}.md").read_text()


def test_the_published_numbers():
    assert set(recipe(NAME)) <= set(map(str.upper, Config.model_fields))
    config = Config.from_env({**recipe(NAME), **OUTSIDE[NAME]})
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


def test_its_page_says_that_it_was_not_run():
    assert "Nothing of this size was trained or evaluated by us" in PAGE and "47.26" in PAGE
