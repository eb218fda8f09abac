"""Every recipe's own command with the real ``config.json`` of each model that its page names: what would start."""

from pathlib import Path

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.launch import plan as planning
from mem_agent.launch.preflight import find_problems
from mem_agent.tests.helpers.fake_host import OUTSIDE, RECIPES, recipe, settings
from mem_agent.training.train import checked

MEMORY_R = ("qwen2.5-0.5b", "falcon3-1b", "smollm2-1.7b", "qwen2.5-1.5b")
PAGES = [*RECIPES.items(), ("mem1-qwen2.5-7b", "qwen2.5-7b"), *(("memory-r", model) for model in MEMORY_R)]
OF_THE_LOCAL_HOST = {"pocket", "two-hop", "two-hop-memagent", "sifter", "cpu", "smollm2", "babilong-smollm2"}


def test_every_recipe_of_a_host_is_here():
    folder = Path(__file__).parents[2] / "recipes"
    names = {path.stem for path in folder.glob("*.env") if not path.stem.startswith(("eval-", "published-"))}
    assert names - OF_THE_LOCAL_HOST == {name for name, _ in PAGES}


@pytest.mark.parametrize(("name", "model"), PAGES)
def test_the_recipes_command_with_the_config_of_its_model(name, model, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "nvidia_smi", lambda *_: f"{141 * 1024}\n")
    env = settings(tmp_path, "slime", model, **recipe(name)) | OUTSIDE.get(name, {})
    made = planning.make_plan(Config.from_env(env | {"NUM_NODES": "16", "MASTER_ADDR": "10.0.0.1"}))
    assert not find_problems(made.config)


def test_a_model_whose_positions_no_host_can_scale_is_refused_there(tmp_path):
    env = settings(tmp_path, "slime", "llama-3.2-1b", **recipe("memory-r"))
    with pytest.raises(ConfigError, match="HOST=local"):
        planning.make_plan(Config.from_env(env))


@pytest.mark.parametrize(("name", "model"), [("memory-r", "llama-3.2-1b"), ("smollm2", "smollm2-135m"),
                                             ("cpu", "smollm2-135m"), ("babilong-smollm2", "smollm2-135m")])
def test_the_recipe_trains_its_model_here(name, model, tmp_path):
    env = settings(tmp_path, "slime", model, **recipe(name))
    own = {name: value for name, value in env.items() if not name.startswith(("HOST", "NUM_GPUS", "MEGATRON"))}
    config = checked(Config.from_env(own | {"HOST": "local", "TRAIN_DTYPE": "float32"}))
    assert config.hf_ckpt == str(tmp_path / "model") and config.engine_max_len > 0
