"""A converted model carries the settings of its agent, and whoever serves or evaluates it takes them from there."""

from pathlib import Path

import pytest
import yaml

from mem_agent.checkpoints import convert
from mem_agent.checkpoints.hf_model import config_for_model
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.config import Config, ConfigError, write_settings
from mem_agent.tests.helpers.evaluations import make_model
from mem_agent.tests.helpers.tiny_model import make_tiny_model

PROMPTS = "memory: 'Read. {problem} {section} {memory}'\n"
SMALL = {"mem_chunk_tokens": 20, "mem_max_memory": 8, "mem_max_final": 16, "mem_max_question": 12}


def make_run(start, folder, **settings):
    """A run with one checkpoint of a tiny model, and with its settings; the arguments that convert it."""
    write_release(start, folder / "run")
    write_settings(Config(save_path=str(folder / "run"), hf_ckpt=str(start), **settings))
    return ["--input", str(folder / "run"), "--hf", str(start), "--output", str(folder / "out")]


def test_a_model_takes_along_how_its_agent_reads_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(PROMPTS)
    settings = {"agent": "gated", "mem_prompts": "p.yaml", "seed": 7, "eval_temperature": 0.1, "lr": 0.5, **SMALL}
    arguments = make_run(make_tiny_model(tmp_path / "start", tied=True), tmp_path, **settings)
    monkeypatch.chdir("/")
    assert convert.main(arguments) == 0
    assert yaml.safe_load((tmp_path / "out" / "mem_agent.yaml").read_text())["mem_agent"] == {
        "AGENT": "gated", "AGENT_ARGS": "", "TASK": "qa", "TASK_ARGS": "", "MEM_CHUNK_TOKENS": 20, "MEM_MAX_MEMORY": 8,
        "MEM_MAX_FINAL": 16, "MEM_MAX_QUESTION": 12, "MEM_LAYOUT": "section_first",
        "MEM_PROMPTS": "mem_agent_prompts.yaml", "MEM_THINKING": False,
    }
    (tmp_path / "p.yaml").unlink()
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    config, line = config_for_model(moved, {})
    assert Path(config.mem_prompts).read_text() == PROMPTS and config.agent == "gated" and config.seed == 1
    assert line.startswith(f"settings from {moved}/mem_agent.yaml: AGENT=gated MEM_CHUNK_TOKENS=20 ")


# --- who reads them -------------------------------------------------------------------------------------------------


def leave(model, **settings):
    (model / "mem_agent.yaml").write_text(yaml.safe_dump({"mem_agent": settings}, sort_keys=False))


@pytest.fixture
def model(tmp_path):
    model = make_model(tmp_path / "model", positions=4096)
    leave(model, **{name.upper(): value for name, value in SMALL.items()})
    return model


def test_the_environment_wins_over_the_model_which_sets_nothing_but_its_agent(model):
    leave(model, MEM_CHUNK_TOKENS=20, MEM_MAX_MEMORY=8, TRUST_REMOTE_CODE=True)
    config, said = config_for_model(model, {"MEM_CHUNK_TOKENS": "300"})
    assert (config.mem_chunk_tokens, config.mem_max_memory, config.trust_remote_code) == (300, 8, False)
    assert said == f"settings from {model}/mem_agent.yaml: MEM_MAX_MEMORY=8"


@pytest.mark.parametrize("name,place", [("AGENT", "{}/own.py:Own"), ("TASK", "qa,{}/own.py:Own")])
def test_a_class_that_only_the_model_names_is_not_run(model, tmp_path, name, place):
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    named = place.format(tmp_path)
    leave(model, **{name: named})
    with pytest.raises(ConfigError, match=f"mem_agent.yaml: {name}='.*own:?.*'.* TRUST_REMOTE_CODE=1"):
        config_for_model(model, {})
    assert not (tmp_path / "ran").exists()
    for env in ({name: named}, {"TRUST_REMOTE_CODE": "1"}):
        assert getattr(config_for_model(model, env)[0], name.lower()) == named
