"""STYLE: one switch over what a published code does otherwise, each of it a setting of its own."""

from dataclasses import fields
from pathlib import Path

import pytest

from mem_agent.config import STYLES, Config, ConfigError, shaping_agent

RECIPES = Path(__file__).parents[2] / "recipes"
USERS = ["qwen2.5-7b", "qwen2.5-14b", "rememr1-qwen2.5-3b", "rememr1-qwen2.5-7b", "eval-memagent", "eval-rememr1"]


def recipe(name):
    lines = (RECIPES / f"{name}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize("style", STYLES)
def test_each_of_its_values_is_another_than_the_packs_or_said_to_be_kept(style):
    """What equals the default stands there because another value would not be the published one."""
    config = Config.from_env({"STYLE": style})
    kinds = {f.name.upper(): type(f.default) for f in fields(Config)}
    for name, value in STYLES[style].items():
        assert getattr(config, name.lower()) == value and type(value) is kinds[name], name
    same = {name for name, value in STYLES[style].items() if getattr(Config(), name.lower()) == value}
    assert same == {"ADV_STD"}


@pytest.mark.parametrize("style,name,value", [
    ("published-memagent", "MEM_LAYOUT", "section_first"), ("published-rememr1", "AGENT", "memagent"),
    ("published-rememr1", "EPS_CLIP_C", "0"), ("published-memagent", "ADV_STD", "1"),
])
def test_a_contradiction_names_both(style, name, value):
    line = f"^{name}=.* contradicts STYLE={style}, which has {name}=.*; leave {name} out"
    with pytest.raises(ConfigError, match=line):
        Config.from_env({"STYLE": style, name: value})
    Config.from_env({"STYLE": "own", name: value})


@pytest.mark.parametrize("style", STYLES)
def test_it_travels_with_the_settings_and_the_model(style):
    config = Config.from_env({"STYLE": style, "LR": "1e-5"})
    assert Config.from_mapping(config.to_mapping()) == config
    carried = set(shaping_agent())
    assert "style" not in carried and {"mem_layout", "mem_carry"} <= carried  # a model takes along what it resolves to


@pytest.mark.parametrize("name", USERS)
def test_the_papers_recipes_hold_their_style(name):
    settings = recipe(name)
    assert Config.from_env(settings).style == settings["STYLE"] != "own"


def test_only_the_papers_recipes_set_one():
    assert sorted(path.stem for path in RECIPES.glob("*.env") if "STYLE" in recipe(path.stem)) == sorted(USERS)
