"""A model's card: what it was trained on and how, what evaluation found, nothing of the machine's folders."""

import hashlib
import shlex
from pathlib import Path

import pytest
import yaml
from huggingface_hub import RepoUrl
from huggingface_hub.errors import HTTPError, LocalTokenNotFoundError

from mem_agent.checkpoints import model_card
from mem_agent.checkpoints.model_card import (
    CARD,
    CardError,
    card_of_mean,
    card_of_run,
    check_push,
    command,
    push,
    read_card,
    with_evaluation,
)
from mem_agent.config import SETTINGS_FILE, Config
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.stage_rows import write_rows


@pytest.fixture
def run(tmp_path):
    data = tmp_path / "secret folder" / "train.jsonl"
    data.parent.mkdir()
    data.write_text('{"prompt": "q", "metadata": {}}\n')
    config = Config(hf_ckpt="Org/Model", train_data=str(data), save_path=str(tmp_path / "run"), num_rollout=7,
                    agent="gated", mem_concurrency=9, lr=3e-6)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / SETTINGS_FILE).write_text(config.with_absolute_paths().to_yaml())
    return folder


def head(card):
    return yaml.safe_load(card.split("---")[1])


def test_it_says_what_was_trained_on_what_and_how_to_do_it_again(run, tmp_path):
    card = card_of_run(run, "iter_0000006", "/models/start")
    assert head(card)["base_model"] == "Org/Model" and head(card)["library_name"] == "transformers"
    digest = hashlib.sha256((tmp_path / "secret folder" / "train.jsonl").read_bytes()).hexdigest()
    assert f"`{digest}`" in card and "`iter_0000006`" in card
    assert "AGENT=gated \\\n" in card and "NUM_ROLLOUT=7 \\\n" in card and "LR=3e-06 \\\n" in card
    assert card.count("bash run-train.sh") == 1
    assert str(tmp_path) not in card and "MEM_CONCURRENCY" not in card and "SAVE_PATH" not in card


def test_the_command_leads_to_the_same_settings():
    given = Config(agent="gated", mem_chunk_tokens=99, agent_args="", task_args="form='a b'", num_rollout=3)
    line = command(given.to_mapping()).replace("\\\n", " ")
    env = dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)
    assert Config.from_env(env) == given


def test_without_settings_or_data_it_says_so(run, tmp_path):
    (tmp_path / "secret folder" / "train.jsonl").unlink()
    assert "`train.jsonl` was" in card_of_run(run, "iter_0000006", "")
    (run / SETTINGS_FILE).unlink()
    card = card_of_run(run, "iter_0000006", "Org/Model")
    assert "## Training" not in card and "Not evaluated yet" in card


def test_shards_are_told_with_their_hashes(run, tmp_path):
    write_rows(tmp_path / "train_0.parquet", [{"prompt": "q", "metadata": {"id": "a"}}])
    (run / SETTINGS_FILE).write_text(Config(train_data=str(tmp_path), save_path=str(run)).to_yaml())
    digest = hashlib.sha256((tmp_path / "train_0.parquet").read_bytes()).hexdigest()
    assert f"`{digest}`" in card_of_run(run, "iter_0000006", "")


def test_an_evaluation_replaces_the_one_before(run):
    card = card_of_run(run, "iter_0000006", "")
    once = with_evaluation(card, "| first |", [])
    twice = with_evaluation(once, "| second |", [])
    assert "| first |" in once and "Not evaluated yet" not in once
    assert "| first |" not in twice and "| second |" in twice
    assert head(twice)["base_model"] == "Org/Model" and twice.count("## Evaluation") == 1


def test_a_card_of_somebody_elses_is_left_alone(tmp_path):
    with pytest.raises(CardError):
        with_evaluation("# My model\n", "| x |", [])
    with pytest.raises(CardError, match=str(tmp_path)):
        read_card(tmp_path)


def test_a_mean_has_the_last_ones_card_and_no_evaluation(run, tmp_path):
    folders = [tmp_path / name for name in ("iter_1", "iter_2")]
    for folder in folders:
        folder.mkdir()
    bare = card_of_mean(folders)
    (folders[1] / CARD).write_text(with_evaluation(card_of_run(run, "iter_2", ""), "| 99 |", []))
    card = card_of_mean(folders)
    assert "the mean of `iter_1`, `iter_2`" in card and "the mean of `iter_1`" in bare
    assert "| 99 |" not in card and "AGENT=gated" in card


@pytest.mark.parametrize("start", ["/home/me/models/mine", "models/mine"])
def test_a_local_start_is_no_base_model_of_the_hub(run, tmp_path, monkeypatch, start):
    monkeypatch.chdir(tmp_path)
    Path("models/mine").mkdir(parents=True)
    settings = run / SETTINGS_FILE
    settings.write_text(settings.read_text().replace("Org/Model", start))
    card = card_of_run(run, "iter_0000006", "")
    assert "base_model" not in head(card) and "mine, trained" in card and "/home/me" not in card


SNAPSHOT = "/home/me/.cache/huggingface/hub/models--Org--My-Model/snapshots/c1899de289a04d12100db370d81485cdf75e47ca"


@pytest.mark.parametrize("with_settings", [True, False])
def test_a_model_of_the_hub_is_named_by_its_id_not_by_its_snapshot(run, with_settings):
    """A run leaves the folder that its HF_CKPT was downloaded to; without settings it is the one given to convert."""
    settings = run / SETTINGS_FILE
    settings.write_text(settings.read_text().replace("Org/Model", SNAPSHOT))
    if not with_settings:
        settings.unlink()
    card = card_of_run(run, "iter_0000006", SNAPSHOT if not with_settings else "/elsewhere")
    assert head(card)["base_model"] == "Org/My-Model" and "# Org/My-Model, trained" in card
    assert "c1899" not in card and ("HF_CKPT=Org/My-Model" in card) is with_settings


@pytest.mark.parametrize("value,shown", [
    ("path='/home/me/private/prompts.yaml', n=3", "path='prompts.yaml', n=3"),
    ("a=1,b=/tmp/private/x.json:y=/var/tmp/private/z", "a=1,b=x.json:y=z"),
    ("http://host/v1/chat Org/Model 1/2 a/b", "http://host/v1/chat Org/Model 1/2 a/b"),
])
def test_paths_of_the_machine_are_shown_by_their_last_part(run, value, shown):
    settings = run / SETTINGS_FILE
    settings.write_text(Config(hf_ckpt="Org/Model", agent_args=f"x={value}", save_path=str(run)).to_yaml())
    (row,) = [line for line in card_of_run(run, "iter_2", "").splitlines() if line.startswith("| `AGENT_ARGS`")]
    assert row == f"| `AGENT_ARGS` | `x={shown}` |"


# --- to the hub -----------------------------------------------------------------------------------------------------


@pytest.fixture
def api(monkeypatch):
    class FakeApi:
        calls: list = []
        error: Exception | None = None

        def __getattr__(self, name):
            def call(*args, **kwargs):
                FakeApi.calls.append((name, args, kwargs))
                if FakeApi.error:
                    raise FakeApi.error
                return RepoUrl("https://huggingface.co/ORG/NAME") if name == "create_repo" else None

            return call

    monkeypatch.setattr(model_card, "HfApi", FakeApi)
    return FakeApi


def test_the_whole_folder_goes_in_one_commit(api, tmp_path):
    (tmp_path / "base.json").touch()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "tokenizer.json").symlink_to("../base.json")
    assert push(tmp_path / "model", "ORG/NAME", private=True) == "https://huggingface.co/ORG/NAME"
    (created, names, options), (uploaded, _, upload) = api.calls
    assert (created, names, options["private"], options["exist_ok"]) == ("create_repo", ("ORG/NAME",), True, True)
    assert (uploaded, upload["repo_id"], upload["folder_path"]) == ("upload_folder", "ORG/NAME", tmp_path / "model")
    api.error = HTTPError("connection\nlost")
    with pytest.raises(MemAgentError, match="ORG/NAME"):
        push(tmp_path, "ORG/NAME", private=False)


@pytest.mark.parametrize(("error", "said"), [
    (LocalTokenNotFoundError("no token"), "HF_TOKEN"),
    (OSError("no route"), "no route.*HF_TOKEN"),
    (HTTPError("Illegal header value b'Bearer hf_secret\\x01'"), "HF_TOKEN"),
])
def test_nobody_logged_in_is_one_line_without_the_token(api, error, said):
    api.error = error
    with pytest.raises(MemAgentError, match=said) as told:
        check_push("ORG/NAME")
    assert "hf_secret" not in str(told.value)


def test_a_name_that_the_hub_does_not_take_is_refused_before_any_work(api):
    with pytest.raises(MemAgentError, match="a/b/c"):
        check_push("a/b/c")
    assert not api.calls
