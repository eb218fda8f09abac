"""A model's card: what it was trained on and how, what evaluation found, nothing of the machine's folders."""

import hashlib
import shlex
from unittest.mock import Mock

import pytest
import yaml
from huggingface_hub import RepoUrl
from huggingface_hub.errors import HTTPError

from mem_agent.checkpoints import model_card
from mem_agent.checkpoints.model_card import CARD, card_of_mean, card_of_run, command, with_evaluation
from mem_agent.config import SETTINGS_FILE, Config
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.stage_rows import write_rows

SNAPSHOT = "/home/me/.cache/huggingface/hub/models--Org--My-Model/snapshots/c1899de289a04d12100db370d81485cdf75e47ca"


@pytest.fixture
def run(tmp_path):
    """The folder of a run that was trained on one shard; with its settings."""
    data = tmp_path / "secret folder" / "train_0.parquet"
    data.parent.mkdir()
    write_rows(data, [{"prompt": "q", "metadata": {"id": "a"}}])
    (tmp_path / "run").mkdir()
    leave(tmp_path / "run", num_rollout=7, agent="gated", mem_concurrency=9, lr=3e-6)
    return tmp_path / "run"


def leave(run, **settings):
    given = {"hf_ckpt": "Org/Model", "train_data": str(run.parent / "secret folder"), "save_path": str(run)} | settings
    (run / SETTINGS_FILE).write_text(Config(**given).to_yaml())


def head(card):
    return yaml.safe_load(card.split("---")[1])


def test_it_says_what_was_trained_on_what_and_how_to_do_it_again(run, tmp_path):
    card = card_of_run(run, "iter_0000006", "/models/start")
    assert head(card)["base_model"] == "Org/Model" and head(card)["library_name"] == "transformers"
    digest = hashlib.sha256((tmp_path / "secret folder" / "train_0.parquet").read_bytes()).hexdigest()
    assert f"`{digest}`" in card and "`iter_0000006`" in card
    assert "AGENT=gated \\\n" in card and "NUM_ROLLOUT=7 \\\n" in card and "LR=3e-06 \\\n" in card
    assert card.count("bash run-train.sh") == 1
    assert str(tmp_path) not in card and "MEM_CONCURRENCY" not in card and "SAVE_PATH" not in card


def test_the_command_leads_to_the_same_settings():
    given = Config(agent="gated", mem_chunk_tokens=99, agent_args="", task_args="form='a b'", num_rollout=3)
    line = command(given.to_mapping()).replace("\\\n", " ")
    env = dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)
    assert Config.from_env(env) == given


def test_an_evaluation_replaces_the_one_before_and_a_mean_has_none(run, tmp_path):
    card = with_evaluation(with_evaluation(card_of_run(run, "iter_0000006", ""), "| first |", []), "| second |", [])
    assert "| first |" not in card and "| second |" in card and "Not evaluated yet" not in card
    assert head(card)["base_model"] == "Org/Model" and card.count("## Evaluation") == 1
    folders = [tmp_path / name for name in ("iter_1", "iter_2")]
    folders[1].mkdir()
    assert "the mean of `iter_1`" in card_of_mean(folders)
    (folders[1] / CARD).write_text(card)
    mean = card_of_mean(folders)
    assert "the mean of `iter_1`, `iter_2`" in mean and "| second |" not in mean and "AGENT=gated" in mean
    with pytest.raises(MemAgentError):
        with_evaluation("# My model\n", "| x |", [])


@pytest.mark.parametrize("start,base,title", [
    ("/home/me/models/mine", None, "mine"), (SNAPSHOT, "Org/My-Model", "Org/My-Model"),
])
def test_the_start_is_named_by_its_hub_id_or_its_folder(run, start, base, title):
    """A run leaves the folder that its HF_CKPT was downloaded to; without settings it is the one given to convert."""
    leave(run, hf_ckpt=start, agent_args="a=http://host/v1/chat Org/Model,b=/tmp/private/x.json")
    card = card_of_run(run, "iter_0000006", "/elsewhere")
    assert head(card).get("base_model") == base and f"# {title}, trained" in card
    assert "c1899" not in card and "/home/me" not in card
    assert "\n| `AGENT_ARGS` | `a=http://host/v1/chat Org/Model,b=x.json` |\n" in card


# --- to the hub -----------------------------------------------------------------------------------------------------


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
