"""The MemSifter recipe is the released task-reward round (``qwen3_4b_task_reward.sh``, plageon/MemSifter 92f0eae)."""

from pathlib import Path

from mem_agent.config import Config, variable_names
from mem_agent.hooks.answer_utility import check
from mem_agent.rewards.overlong import overlong_share
from mem_agent.tests.helpers.fake_host import OUTSIDE, recipe

NAME = "memsifter-qwen3-4b"
PAGE = (Path(__file__).parents[2] / "recipes" / f"{NAME}.md").read_text()


def settings():
    return Config.from_env({**recipe(NAME), **OUTSIDE[NAME]})


def test_the_published_numbers():
    assert set(recipe(NAME)) <= set(variable_names())
    config = settings()
    assert (config.rollout_batch_size, config.n_samples_per_prompt, config.groups_in_flight) == (16, 6, 32)
    assert config.step_trajectories == 6 and config.max_gen_batches == 10 and config.num_rollout == 6650 // 16
    assert (config.mem_max_question, config.mem_max_final) == (132 * 1024, 16 * 1024)
    assert (config.overlong_buffer, config.overlong_penalty) == (4 * 1024, 1.0)
    assert [overlong_share(n, config.mem_max_final, config.overlong_buffer) for n in (12288, 16384)] == [0, 1]
    assert (config.eps_clip, config.eps_clip_high, config.eps_clip_c) == (0.2, 0.28, 10)
    assert (config.lr, config.weight_decay, config.clip_grad, config.kl_coef) == (1e-6, 0.1, 1.0, 0.0)
    assert config.adv_std and config.loss_agg == "token" and config.tis == "on" and config.temperature == 1
    answering = (config.answer_temperature, config.answer_max_tokens, config.answer_concurrency, config.answer_timeout)
    assert answering == (0.3, 4096, 32, 300) and config.answer_retries == 3


def test_its_reward_can_be_made_and_its_page_says_that_it_was_not_run():
    assert check(settings()).tiers == "1,2,3,5,8,10"
    assert "Nothing of this size was trained or evaluated by us" in PAGE and "47.26" in PAGE
