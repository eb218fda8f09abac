"""A converted model carries the settings of its agent, and a card without the folders of the machine."""

import hashlib
import shlex
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from huggingface_hub import RepoUrl
from huggingface_hub.errors import HTTPError

from mem_agent.checkpoints import convert, model_card
from mem_agent.checkpoints.hf_model import config_for_model, unlike_settings
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.checkpoints.model_card import CARD, card_of_mean, card_of_run, command, with_evaluation
from mem_agent.config import SETTINGS_FILE, Config, ConfigError, write_settings
from mem_agent.system.cli import PACK
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.tiny_model import make_tiny_model

SNAPSHOT = "/home/me/.cache/huggingface/hub/models--Org--My-Model/snapshots/c1899de289a04d12100db370d81485cdf75e47ca"
PROMPTS = "memory: 'Read. {problem} {section} {memory}'\n"

# --- settings of its agent ------------------------------------------------------------------------------------------


def test_a_model_takes_along_how_its_agent_reads_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(PROMPTS)
    write_release(make_tiny_model("start", tied=True), "run")
    write_settings(Config(agent="gated", mem_prompts="p.yaml", seed=7, lr=0.5, mem_chunk_tokens=20, save_path="run"))
    assert convert.main(["--input", "run", "--hf", "start", "--output", "out"]) == 0
    assert yaml.safe_load(Path("out", "mem_agent.yaml").read_text())["mem_agent"] == {
        "AGENT": "gated", "AGENT_ARGS": "", "TASK": "qa", "TASK_ARGS": "", "MEM_CHUNK_TOKENS": 20,
        "MEM_MAX_MEMORY": 1024, "MEM_MAX_FINAL": 256, "MEM_MAX_QUESTION": 1024, "MEM_LAYOUT": "section_first",
        "MEM_PROMPTS": "mem_agent_prompts.yaml", "MEM_THINKING": False,
    }
    Path("p.yaml").unlink()
    moved = Path("out").rename(tmp_path / "moved")
    config, line = config_for_model(moved, {})
    assert Path(config.mem_prompts).read_text() == PROMPTS and config.agent == "gated" and config.seed == 1
    assert line.startswith(f"settings from {moved}/mem_agent.yaml: AGENT=gated MEM_CHUNK_TOKENS=20 ")


def test_the_start_of_the_pocket_profile_can_be_copied(tmp_path):
    folder = shutil.copytree(PACK / "pocket" / "start", tmp_path / "mine")
    config, _ = config_for_model(folder, {})
    assert Path(config.mem_prompts).is_file() and not unlike_settings(folder, config)


def test_the_environment_wins_over_the_model_which_sets_nothing_but_its_agent(tmp_path):
    settings = {"MEM_CHUNK_TOKENS": 20, "MEM_MAX_MEMORY": 8, "TRUST_REMOTE_CODE": True}
    (tmp_path / SETTINGS_FILE).write_text(yaml.safe_dump({"mem_agent": settings}))
    config, said = config_for_model(tmp_path, {"MEM_CHUNK_TOKENS": "300"})
    assert (config.mem_chunk_tokens, config.mem_max_memory, config.trust_remote_code) == (300, 8, False)
    assert said == f"settings from {tmp_path}/mem_agent.yaml: MEM_MAX_MEMORY=8"


def test_a_class_that_only_the_model_names_is_not_run(tmp_path):
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    named = f"{tmp_path}/own.py:Own"
    (tmp_path / SETTINGS_FILE).write_text(f"mem_agent: {{AGENT: '{named}'}}")
    with pytest.raises(ConfigError, match=r"mem_agent\.yaml: AGENT=.* TRUST_REMOTE_CODE=1"):
        config_for_model(tmp_path, {})
    assert not (tmp_path / "ran").exists()
    for env in ({"AGENT": named}, {"TRUST_REMOTE_CODE": "1"}):
        assert config_for_model(tmp_path, env)[0].agent == named


# --- its card -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    """The folder of a run with its settings, and with the file it was trained on."""
    (tmp_path / "train.jsonl").write_text("{}")
    settings = {"hf_ckpt": SNAPSHOT, "train_data": str(tmp_path / "train.jsonl"), "num_rollout": 7, "agent": "gated",
                "agent_args": "a=http://host/v1/chat Org/Model,b=/tmp/private/x.json", "mem_concurrency": 9}
    write_settings(Config(save_path=str(tmp_path / "run"), **settings))
    return tmp_path / "run"


def head(card):
    return yaml.safe_load(card.split("---")[1])


def test_it_says_what_was_trained_on_what_and_how_to_do_it_again_and_nothing_of_this_machine(run, tmp_path):
    card = card_of_run(run, "iter_0000006", "/models/start")
    assert head(card)["base_model"] == "Org/My-Model" and head(card)["library_name"] == "transformers"
    assert "# Org/My-Model, trained" in card and "`iter_0000006`" in card
    assert f"`{hashlib.sha256(b'{}').hexdigest()}`" in card
    assert "AGENT=gated \\\n" in card and "NUM_ROLLOUT=7 \\\n" in card
    assert "\n| `AGENT_ARGS` | `a=http://host/v1/chat Org/Model,b=x.json` |\n" in card
    assert not [text for text in (str(tmp_path), "MEM_CONCURRENCY", "SAVE_PATH", "c1899", "/home/me") if text in card]


def test_the_command_leads_to_the_same_settings():
    given = Config(agent="gated", mem_chunk_tokens=99, agent_args="", task_args="form='a b'", num_rollout=3)
    line = command(given.to_mapping()).replace("\\\n", " ")
    env = dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)
    assert Config.from_env(env) == given


def test_an_evaluation_replaces_the_one_before_and_a_mean_has_none(run, tmp_path):
    card = with_evaluation(with_evaluation(card_of_run(run, "iter_0000006", ""), "| first |", []), "| second |", [])
    assert "| first |" not in card and "| second |" in card and "Not evaluated yet" not in card
    assert head(card)["base_model"] == "Org/My-Model" and card.count("## Evaluation") == 1
    (run / CARD).write_text(card)
    mean = card_of_mean([tmp_path / "iter_1", run])
    assert "the mean of `iter_1`, `run`" in mean and "| second |" not in mean and "AGENT=gated" in mean


def test_the_folder_goes_to_the_hub_or_one_line_without_the_token_says_why_not(monkeypatch, tmp_path):
    api = Mock()
    api.create_repo.return_value = RepoUrl("https://huggingface.co/ORG/NAME")
    monkeypatch.setattr(model_card, "HfApi", lambda: api)
    assert model_card.push(tmp_path, "ORG/NAME", private=True) == "https://huggingface.co/ORG/NAME"
    assert api.upload_folder.call_args.kwargs["folder_path"] == tmp_path
    api.create_repo.side_effect = HTTPError("Illegal\nvalue b'Bearer hf_secret\\x01'")
    with pytest.raises(MemAgentError, match=r"ORG/NAME.*HF_TOKEN") as told:
        model_card.push(tmp_path, "ORG/NAME", private=False)
    assert "hf_secret" not in str(told.value) and "\n" not in str(told.value)
