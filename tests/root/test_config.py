"""One frozen config: what it accepts, what an error names, how it travels."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from mem_agent.config import READING, Config, ConfigError, listing, load_yaml, markdown
from mem_agent.hooks.host import config_of
from mem_agent.system.cli import PACK


@pytest.mark.parametrize("values,named", [
    ({"LR": "fast"}, "LR"), ({"MEM_CHUNKS_TOKEN": 1}, "MEM_CHUNKS_TOKEN"), ({"MEM_LAYOUT": "memory"}, "section_first"),
    ({"TP": "2", "TRAIN_PROCS": "3"}, "TRAIN_PROCS"), ({"GLOBAL_BATCH_SIZE": "7"}, "GLOBAL_BATCH_SIZE"),
    ({"N_SAMPLES_PER_PROMPT": "1"}, "mean"),  # of groups of one is the reward itself
])
def test_a_bad_value_is_one_line_that_names_the_setting(values, named):
    with pytest.raises(ConfigError, match=named) as error:
        Config.from_mapping(values)
    assert "\n" not in str(error.value)


def test_there_are_at_most_75_settings():
    assert len(Config.model_fields) <= 75 and set(READING) < set(Config.model_fields)


def test_a_recipe_is_read_and_the_users_own_variables_win(tmp_path, monkeypatch):
    (tmp_path / "own.env").write_text("MEM_CHUNK_TOKENS=77\nMEM_MAX_FINAL=9\n")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= {"RECIPE": str(tmp_path / "own.env"), "MEM_MAX_FINAL": "8", "LR": "1e-6", "AGENT": ""}
    config = Config.from_env()
    assert (config.mem_chunk_tokens, config.mem_max_final, config.lr, config.agent) == (77, 8, 1e-6, "memagent")
    os.environ |= {"RECIPE": str(PACK / "recipes" / "pocket.env"), "TRAIN_DATA": str(tmp_path)}
    for name in ("train.jsonl", "eval_9.json"):
        (tmp_path / name).touch()
    config = Config.from_env()
    assert (config.data_root, config.length, config.num_rollout) == (str(tmp_path), "9", 40)  # its own questions
    os.environ["RECIPE"] = "my.env"
    with pytest.raises(ConfigError, match=r"my\.env"):
        Config.from_env()


def test_yaml_round_trip_as_hosts_deliver_it(tmp_path, monkeypatch):
    config = Config(mem_chunk_tokens=7, mem_layout="memory_first", lr=3e-5, agent_args="carry=reply")
    path = tmp_path / "custom.yaml"
    path.write_text(config.to_yaml())
    assert load_yaml(path) == config
    assert config_of(SimpleNamespace(**yaml.safe_load(path.read_text()))) == config
    monkeypatch.setenv("MEM_CHUNK_TOKENS", "33")
    assert config_of(SimpleNamespace()).mem_chunk_tokens == 33
    assert config_of(SimpleNamespace(mem_agent={"MEM_CHUNK_TOKENS": 44})).mem_chunk_tokens == 44


def test_paths_are_absolute_for_whoever_reads_them_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    config = Config(hf_ckpt="model", train_data="rows.jsonl", agent="own.py:Own", eval_data="dev.jsonl 'a b.jsonl'")
    moved = config.with_absolute_paths()
    assert moved.hf_ckpt == str(tmp_path / "model") and moved.agent == f"{tmp_path / 'own.py'}:Own"
    assert moved.eval_files == [str(tmp_path / "dev.jsonl"), str(tmp_path / "a b.jsonl")]
    assert Config(hf_ckpt="Qwen/Qwen3-4B").with_absolute_paths().hf_ckpt == "Qwen/Qwen3-4B"


def test_settings_that_are_set_are_listed_first():
    lines = listing(Config(lr=0.5)).splitlines()
    assert lines[1].split()[:2] == ["LR", "0.5"] and sum(line.startswith("LR ") for line in lines) == 2


def test_the_page_of_settings_is_what_the_command_writes():
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == markdown(), "run `mem-agent config --markdown > docs/settings.md`"
