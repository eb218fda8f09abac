"""A model's card: what it was trained on and how, what evaluation found, nothing of the machine's folders."""

import hashlib
import shlex
import tempfile

import pytest
import yaml
from huggingface_hub import ModelCard

from mem_agent.checkpoints.model_card import (
    CARD,
    CardError,
    card_of_mean,
    card_of_run,
    command,
    read_card,
    with_evaluation,
    write_card,
)
from mem_agent.config import SETTINGS_FILE, Config
from mem_agent.tests.helpers.stage_rows import write_rows


@pytest.fixture
def run(tmp_path):
    data = tmp_path / "secret folder" / "train.jsonl"
    data.parent.mkdir()
    data.write_text('{"prompt": "q", "metadata": {}}\n')
    config = Config(hf_ckpt="Org/Model", train_data=str(data), save_path=str(tmp_path / "run"), num_rollout=7,
                    agent="gated", mem_request_timeout=9.0, lr=3e-6)
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
    assert str(tmp_path) not in card and "MEM_REQUEST_TIMEOUT" not in card


def test_the_command_leads_to_the_same_settings():
    given = Config(agent="gated", mem_chunk_tokens=99, agent_args="", task_args="form='a b'", num_rollout=3)
    line = command(given.to_mapping()).replace("\\\n", " ")
    env = dict(word.split("=", 1) for word in shlex.split(line) if "=" in word)
    assert Config.from_env(env) == given


def test_a_local_start_is_no_base_model_of_the_hub(run):
    settings = run / SETTINGS_FILE
    settings.write_text(settings.read_text().replace("Org/Model", "/home/me/models/mine"))
    card = card_of_run(run, "iter_0000006", "")
    assert "base_model" not in head(card) and "# mine, trained" in card and "/home/me" not in card


def test_without_settings_or_data_it_says_so(run, tmp_path):
    (tmp_path / "secret folder" / "train.jsonl").unlink()
    assert "`train.jsonl` was no longer there" in card_of_run(run, "iter_0000006", "")
    (run / SETTINGS_FILE).unlink()
    card = card_of_run(run, "iter_0000006", "Org/Model")
    assert "## Training" not in card and "None is recorded" in card


NO_ROWS = {"a key": ".netrc", "JSON lines of other things": "notes.jsonl", "a parquet file of none": "keys.parquet",
           "nothing": "gone.jsonl", "what has no end": "/dev/zero"}


@pytest.mark.parametrize("named", NO_ROWS.values(), ids=NO_ROWS)
def test_of_a_file_without_training_rows_a_card_tells_nothing(run, tmp_path, named):
    """A run of somebody else's names it; a hash tells whoever guesses what is in it that he is right."""
    for name in (".netrc", "notes.jsonl", "keys.parquet"):
        (tmp_path / name).write_text('{"password": "hunter2"}\n')
    (run / SETTINGS_FILE).write_text(Config(train_data=str(tmp_path / named), save_path=str(run)).to_yaml())
    card = card_of_run(run, "iter_0000006", "")
    said = f"`{named.rpartition('/')[2]}` was no longer there, with training rows in it, when this was written."
    assert card.partition("## Data\n\n")[2].splitlines()[0] == said


def test_shards_are_told_with_their_hashes(run, tmp_path):
    write_rows(tmp_path / "train_0.parquet", [{"prompt": "q", "metadata": {"id": "a"}}])
    (run / SETTINGS_FILE).write_text(Config(train_data=str(tmp_path), save_path=str(run)).to_yaml())
    digest = hashlib.sha256((tmp_path / "train_0.parquet").read_bytes()).hexdigest()
    assert f"`{digest}`" in card_of_run(run, "iter_0000006", "")


def test_an_evaluation_replaces_the_one_before(run):
    card = card_of_run(run, "iter_0000006", "")
    once = with_evaluation(card, "| first |", [])
    twice = with_evaluation(once, "| second |", [])
    assert "| first |" in once and "None is recorded" not in once
    assert "| first |" not in twice and "| second |" in twice
    assert head(twice)["base_model"] == "Org/Model" and twice.count("## Evaluation") == 1


def test_a_card_of_somebody_elses_is_left_alone(tmp_path):
    with pytest.raises(CardError, match="no place for an evaluation"):
        with_evaluation("# My model\n", "| x |", [])
    with pytest.raises(CardError, match="convert the checkpoint"):
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


def test_a_mean_takes_no_card_from_elsewhere_along(run, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    write_card(run, card_of_run(run, "iter_2", ""))
    (folder / CARD).symlink_to(run / CARD)
    with pytest.raises(CardError, match=r"/theirs/README\.md: a link out of the model's folder, which is not"):
        card_of_mean([folder])


def test_a_mean_of_models_whose_card_is_no_text_has_one(tmp_path):
    folder = tmp_path / "iter_1"
    folder.mkdir()
    (folder / CARD).write_bytes(b"\xff\xfe# A model of another's")
    assert card_of_mean([folder]).startswith("# A mean of models")


PATHS = {
    "in an argument": ("path='/home/me/private/prompts.yaml', n=3", "path='prompts.yaml', n=3"),
    "with blanks": ("path='/home/me/private notes/prompts.yaml'", "path='prompts.yaml'"),
    "of a user": ("path=~me/private/prompts.yaml", "path=prompts.yaml"),
    "at home": ("path='~/private/prompts.yaml'", "path='prompts.yaml'"),
    "beside": ("path=../private/prompts.yaml", "path=prompts.yaml"),
    "of a temporary file": ("a=1,b=/tmp/private/x.json:y=/var/tmp/private/z", "a=1,b=x.json:y=z"),
    "a folder": ("[/srv/private/data/]", "[data]"),
    "as an address": ("file:///home/me/private/x", "x"),
    "none": ("http://host/v1/chat s3://bucket/key Org/Model 1/2 a/b form='a / b' and/or //", None),
}


@pytest.mark.parametrize("value,shown", PATHS.values(), ids=PATHS)
def test_paths_are_hidden_wherever_they_stand(run, value, shown):
    settings = run / SETTINGS_FILE
    settings.write_text(Config(hf_ckpt="Org/Model", agent_args=f"x={value}", save_path=str(run)).to_yaml())
    (row,) = [line for line in card_of_run(run, "iter_2", "").splitlines() if line.startswith("| `AGENT_ARGS`")]
    assert row == f"| `AGENT_ARGS` | `x={shown or value}` |" and "private" not in row


def test_where_the_run_and_its_user_live_is_in_no_card(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "private home"))
    save = tmp_path / "private home" / "runs" / "mine"
    save.mkdir(parents=True)
    told = f"prompts='{save}/prompts.yaml', home={tmp_path}/home/x, tmp={tempfile.gettempdir()}/private/y"
    given = Config(hf_ckpt=f"{save}/start", agent_args=told, task_args=told, train_data=f"{save}/a.jsonl",
                   save_path=str(save))
    (save / SETTINGS_FILE).write_text(given.to_yaml())
    card = card_of_run(save, "iter_2", f"{save}/start")
    assert str(tmp_path) not in card and "private" not in card and tempfile.gettempdir() not in card


def test_values_and_names_of_strangers_break_nothing(run):
    odd = "a`b|c <think>\n```\n<!-- evaluation -->"
    settings = run / SETTINGS_FILE
    given = Config(hf_ckpt="/models/odd\n# name <!-- evaluation -->", agent_args=f"form='{odd}'", save_path=str(run))
    settings.write_text(given.to_yaml())
    card = card_of_run(run, "iter_0000006", "")
    assert card.partition("````bash")[0].count("\n# ") == 1 and "\n````bash\n" in card and card.count("\n````\n") == 1
    (row,) = [line for line in card.splitlines() if line.startswith("| `AGENT_ARGS`")]
    assert row == "| `AGENT_ARGS` | ```` form='a`b\\|c <think> ``` <!-- evaluation -->' ```` |"
    scored = with_evaluation(card, "| first |", [])
    assert scored.rstrip().endswith("<!-- evaluation -->\n| first |\n<!-- end of evaluation -->")
    assert with_evaluation(scored, "| first |", []) == scored


DEEP = "a: " + "[" * 900 + "]" * 900


def test_a_head_with_aliases_is_a_head(run):
    card = card_of_run(run, "iter_0000006", "")
    _, _, body = card.split("---", 2)
    text = with_evaluation(f"---\ntags: &t [a, b]\nwidget: *t\nlicense: &l mit\nc: *l\n---{body}", "| x |", [])
    data = ModelCard(text).data.to_dict()
    assert (data["tags"], data["widget"], data["license"], data["c"]) == (["a", "b"], ["a", "b"], "mit", "mit")


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
LONG = f"a: &a {'x' * 2**19}\nb: [{'*a, ' * 1000}]"


BASE_60 = "a: 1" + ":1" * 3000


@pytest.mark.parametrize("edited", ["- a\n- b", "a: [", "a: b: c", DEEP, LAUGHS, LONG, BASE_60, "a: !!int ''"])
def test_a_head_that_somebody_broke_is_one_line(run, edited):
    card = card_of_run(run, "iter_0000006", "")
    _, _, body = card.split("---", 2)
    with pytest.raises(CardError, match="its head is no YAML") as error:
        with_evaluation(f"---\n{edited}\n---{body}", "| x |", [])
    assert "\n" not in str(error.value)
