"""One frozen config: every bad value names the variable, the value and what is allowed."""

import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from mem_agent.config import Config, ConfigError, load_yaml, variable_names
from mem_agent.hooks.host import config_of

BAD = [
    ({"MEM_CHUNK_TOKENS": "0"}, "MEM_CHUNK_TOKENS=0: allowed: a whole number at least 1"),
    ({"MEM_CHUNK_TOKENS": "12.5"}, "MEM_CHUNK_TOKENS='12.5': allowed: a whole number"),
    ({"LR": "fast"}, "LR='fast': allowed: a number"),
    ({"LR": "nan"}, "LR=nan: allowed: a number at least 0"),
    ({"MEM_LAYOUT": "memory"}, "MEM_LAYOUT='memory': allowed: section_first, memory_first"),
    ({"MEM_THINKING": "maybe"}, "MEM_THINKING='maybe': allowed: 1 or 0"),
    ({"EPS_CLIP": "1.5"}, "EPS_CLIP=1.5: allowed: a number at least 0 and at most 1"),
    ({"HOST": "verl"}, "HOST='verl': allowed: auto, local, slime, vime"),
    ({"TP": "2", "TRAIN_PROCS": "3"}, "TP=2 does not divide TRAIN_PROCS=3"),
    ({"GLOBAL_BATCH_SIZE": "7"}, "GLOBAL_BATCH_SIZE=7 counts trajectories and must divide"),
    ({"OVER_SAMPLING_BATCH_SIZE": "3"}, "OVER_SAMPLING_BATCH_SIZE=3 is smaller than ROLLOUT_BATCH_SIZE=8"),
]


@pytest.mark.parametrize("env,message", BAD)
def test_bad_values_are_one_clear_line(env, message):
    with pytest.raises(ConfigError) as error:
        Config.from_env(env)
    assert message in str(error.value)


def test_unknown_setting_is_refused():
    with pytest.raises(ConfigError, match="unknown setting MEM_CHUNKS_TOKEN"):
        Config.from_mapping({"MEM_CHUNKS_TOKEN": 1})


def test_environment_reaches_every_field_and_unset_keeps_the_default():
    config = Config.from_env({"MEM_CHUNK_TOKENS": "5000", "LR": "1e-6", "MEM_THINKING": "1", "AGENT": ""})
    assert (config.mem_chunk_tokens, config.lr, config.mem_thinking, config.agent) == (5000, 1e-6, True, "memagent")


def test_a_command_reads_the_recipe_that_is_named(tmp_path, monkeypatch):
    (tmp_path / "own.env").write_text("MEM_CHUNK_TOKENS=77\nMEM_MAX_FINAL=9\n")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ |= {"RECIPE": str(tmp_path / "own.env"), "MEM_MAX_FINAL": "8"}
    config = Config.from_env()
    assert (config.mem_chunk_tokens, config.mem_max_final) == (77, 8)


@pytest.mark.parametrize("module", ["mem_agent.settings_page", "mem_agent.eval_ruler_hqa", "mem_agent.launch.launch"])
def test_a_recipe_that_is_not_there_is_one_line(module):
    more = {"mem_agent.eval_ruler_hqa": ["--model", "/m", "--output", "/o", "--check"]}.get(module, [])
    done = subprocess.run([sys.executable, "-m", module, *more], env=os.environ | {"RECIPE": "my.env"},
                          capture_output=True, text=True)
    assert done.returncode and done.stderr.count("\n") == 1 and "RECIPE='my.env'" in done.stderr


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().lr = 1.0


def test_yaml_round_trip_as_hosts_deliver_it(tmp_path):
    config = Config(mem_chunk_tokens=7, mem_layout="memory_first", lr=3e-5)
    path = tmp_path / "custom.yaml"
    path.write_text(config.to_yaml())
    assert load_yaml(path) == config
    args = SimpleNamespace(**yaml.safe_load(path.read_text()))
    assert config_of(args) == config


def test_args_without_config_fall_back_to_the_environment(monkeypatch):
    monkeypatch.setenv("MEM_CHUNK_TOKENS", "33")
    assert config_of(SimpleNamespace()).mem_chunk_tokens == 33
    assert config_of(SimpleNamespace(mem_agent={"MEM_CHUNK_TOKENS": 44})).mem_chunk_tokens == 44


def test_importing_any_core_module_reads_no_environment(tmp_path):
    code = (
        "import os, sys\n"
        "class Watch(dict):\n"
        "    def get(self, k, d=None): names.append(k); return dict.get(self, k, d)\n"
        "    def __getitem__(self, k): names.append(k); return dict.__getitem__(self, k)\n"
        "import yaml, tokenizers, aiohttp, orjson, tqdm, pandas, pyarrow\n"
        "names = []\n"
        "os.environ = Watch(os.environ)\n"
        "import mem_agent.rollout, mem_agent.custom_convert, mem_agent.client.rollout_client, mem_agent.prepare_data\n"
        "print([n for n in names if n in sys.argv[1:]])\n"
    )
    out = subprocess.run([sys.executable, "-c", code, *variable_names()], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("value", [None, ["50", "100"], {"most": 2}])
def test_a_setting_of_a_file_is_one_value(value):
    for read in (Config.from_mapping, Config.cached):
        with pytest.raises(ConfigError, match=r"MEM_PROMPTS=.*: expected one value; leave the line out"):
            read({"MEM_PROMPTS": value})
