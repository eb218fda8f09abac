"""``mem-agent run``: what follows training, what is converted and evaluated, and the pocket's chat model."""

import json
import os
import urllib.request

import pytest

from mem_agent.system.ports import free_ports
from mem_agent.training import whole_run


@pytest.fixture
def run(tmp_path, monkeypatch):
    """``run(what, ends, **environment)``: (exit code, the commands that were called), with ``ends`` for training."""
    folder = tmp_path / "run"
    for made in ("eval/before", "eval/after-iter_0000001", "iter_0000001", "hf/iter_0000001"):
        (folder / made).mkdir(parents=True)
    (folder / "iter_0000001" / ".metadata").touch()
    (folder / "hf" / "iter_0000001" / "README.md").touch()
    (folder / "latest_checkpointed_iteration.txt").write_text("1")
    for name in ("MODEL_PATH", "RESULTS", "SAVE_FILE", "FORCE", "PUSH_TO_HUB", "DRY_RUN", "CONVERT", "EVAL", "RECIPE",
                 "POCKET_DATA", "HOST"):
        monkeypatch.delenv(name, raising=False)

    def start(what, ends=0, table=0, **environment):
        calls = []

        def stub(name):
            def command(arguments):
                calls.append(f"{name} {' '.join(arguments)}".rstrip())
                return ends if name == "train" else table if "--table" in arguments else 0

            return command

        for name in ("train", "evaluate", "card"):
            monkeypatch.setattr(whole_run, name, stub(name))
        monkeypatch.setattr("mem_agent.checkpoints.convert.main", stub("convert"))
        own = {"SAVE_PATH": str(folder), "HF_CKPT": "/m", "TRAIN_DATA": "/t", "DATA_ROOT": "/d"}
        for name, value in (own | environment).items():
            monkeypatch.setenv(name, value)
        code = whole_run.main([what])
        return code, [call.replace(f"{folder}/", "") for call in calls]

    return start


TABLE = "evaluate --table eval/before eval/after-iter_0000001"
CARD = "card hf/iter_0000001 --results eval/before eval/after-iter_0000001"


@pytest.mark.parametrize("ends,env,steps", [
    (0, {}, ["train --evaluate", TABLE, CARD]),
    (0, {"PUSH_TO_HUB": "a/b", "PRIVATE": "1"}, ["train --evaluate", TABLE, f"{CARD} --push-to-hub a/b --private"]),
    (0, {"EVAL": "0", "CONVERT": "0"}, ["train"]),
    (1, {}, ["train --evaluate"]),
    (130, {}, ["train --evaluate"]),
])
def test_what_follows_training_as_it_ends(run, ends, env, steps):
    assert run("train", ends, **env) == (ends, steps)


def test_what_an_earlier_start_left_undone_is_done(run):
    code, steps = run("train", 4, BASE_URL="http://other")
    assert code == 0 and "BASE_URL" not in os.environ
    assert steps[0] == "train --evaluate" and steps[1].startswith("convert --input")
    assert steps[1].endswith("--hf /m --iteration iter_0000001")
    assert steps[2:] == ["evaluate --model /m --output eval/before",
                         "evaluate --model hf/iter_0000001 --output eval/after-iter_0000001", TABLE, CARD]


@pytest.mark.parametrize("there,force,converts", [(True, "0", False), (True, "1", True), (False, "0", True)])
def test_run_eval_converts_what_is_not_there(run, tmp_path, there, force, converts):
    model = tmp_path / "run" / "hf" / "iter_0000001"
    if there:
        (model / "config.json").touch()
    code, steps = run("eval", CONVERT="1", SINGLE_ITER="iter_0000001", FORCE=force, RESULTS="/r", SAVE_FILE="name")
    assert code == 0 and steps[-1] == "evaluate --model hf/iter_0000001 --output /r/name"
    assert [step.split()[0] for step in steps[:-1]] == ["convert"] * converts


@pytest.mark.parametrize("tracker", [True, False])
def test_a_run_whose_tracker_is_gone_is_finished_too(run, tmp_path, tracker):
    if not tracker:
        (tmp_path / "run" / "latest_checkpointed_iteration.txt").unlink()
    code, steps = run("train", 4, EVAL="0")
    assert code == 0 and [step.split()[0] for step in steps] == ["train", "convert", "evaluate", "card"]


def test_an_interrupted_table_pushes_nothing(run, monkeypatch):
    code, steps = run("train", PUSH_TO_HUB="a/b", table=130)
    assert code == 130 and steps == ["train --evaluate", TABLE]


def test_the_pockets_chat_model_answers_while_the_run_lasts(monkeypatch):
    port = str(free_ports(1)[0])
    monkeypatch.setenv("POCKET_CHAT_PORT", port)
    with whole_run.pocket_profile(dry=False):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as reply:
            assert json.load(reply)["data"][0]["id"] == "frozen-chat"
        with pytest.raises(whole_run.MemAgentError, match="POCKET_CHAT_PORT"), whole_run.pocket_profile(dry=False):
            pass
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
