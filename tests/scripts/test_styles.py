"""STYLE: one switch over what a published code does otherwise, each of it a setting of its own."""

from dataclasses import fields
from pathlib import Path

import pytest

from mem_agent.config import STYLES, Config, ConfigError, shaping_agent
from mem_agent.evaluation.reading import unasked_form
from mem_agent.hooks.plugins import check_plugins
from mem_agent.tests.helpers.fake_host import recipe

RECIPES = Path(__file__).parents[2] / "recipes"
USERS = ["qwen2.5-7b", "qwen2.5-14b", "rememr1-qwen2.5-3b", "rememr1-qwen2.5-7b", "eval-memagent", "eval-rememr1"]


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


@pytest.mark.parametrize("style,name,value", [
    ("published-memagent", "EVAL_ANSWER", "boxed"), ("published-rememr1", "MEM_REWARD", "published_f1"),
    ("published-rememr1", "MEM_RECALL_QUERY", "none"), ("published-rememr1", "MEM_TURN_WEIGHT", "prompt"),
])
def test_what_the_published_code_offers_is_no_contradiction(style, name, value):
    assert getattr(Config.from_env({"STYLE": style, name: value}), name.lower()) == value


def test_it_stands_above_what_a_model_brings_along_and_below_the_environment():
    own = {"MEM_LAYOUT": "section_first", "AGENT": "memagent", "MEM_CHUNK_TOKENS": 77}
    config = Config.from_env({"STYLE": "published-rememr1"}, defaults=own)
    assert (config.mem_layout, config.agent, config.mem_chunk_tokens) == ("memory_first", "rememr1", 77)


@pytest.mark.parametrize("settings,warned", [
    ({"STYLE": "published-memagent"}, True), ({"STYLE": "published-memagent", "EVAL_ANSWER": "boxed"}, False),
    ({"EVAL_ANSWER": "the_answer_is", "EVAL_MODE": "direct"}, True), ({}, False),
])
def test_reading_a_form_that_no_prompt_asks_for_is_warned_of(settings, warned, tmp_path):
    assert ("no prompt asks for that form" in unasked_form(Config.from_env(settings))) == warned
    prompts = tmp_path / "p.yaml"
    final, direct = "'{problem} {memory} So the answer is'", "'{section} {problem} The answer is'"
    prompts.write_text(f"final: {final}\ndirect: {direct}\n")
    assert unasked_form(Config.from_env(settings | {"MEM_PROMPTS": str(prompts)})) == ""


@pytest.mark.parametrize("style", STYLES)
def test_an_evaluation_gives_no_rewards_and_asks_for_none(style):
    check_plugins(Config.from_env({"STYLE": style, "TASK": "ruler"}), training=False)
    with pytest.raises(ConfigError, match="MEM_REWARD='published': TASK='ruler' rewards in a way of its own"):
        check_plugins(Config.from_env({"STYLE": style, "TASK": "ruler"}))


def test_a_line_names_the_style_that_set_it():
    line = r"MEM_CARRY='reply' \(of STYLE=published-memagent\): AGENT='gated' has nothing"
    with pytest.raises(ConfigError, match=line):
        check_plugins(Config.from_env({"STYLE": "published-memagent", "AGENT": "gated"}))


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
