"""What the embedded host refuses before anything starts, the settings that a run leaves, and the pocket profile."""

import json
import math
import urllib.request
from types import SimpleNamespace

import pytest

from mem_agent.config import Config, ConfigError, load_yaml
from mem_agent.system.errors import MemAgentError
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.fake_host import make_model
from mem_agent.training.resume import Rollout
from mem_agent.training.train import checked, learn, main, pocket_profile

ROW = {"prompt": "q", "label": "a", "metadata": {"context": "c", "ground_truth": ["a"]}}


def settings(tmp_path, **env):
    """The environment of a run that could start; model and data are made."""
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(ROW)}\n" * 9)
    (tmp_path / "dev.jsonl").write_text(json.dumps(ROW | {"metadata": ROW["metadata"] | {"task": "multi-hop"}}))
    make_model(tmp_path / "model", "qwen3-0.6b")
    return {"TRAIN_DATA": str(tmp_path / "train.jsonl"), "HF_CKPT": str(tmp_path / "model")} | env


REFUSED = [
    ({"HOST": "slime"}, "HOST=slime"), ({"TRAIN_DATA": ""}, "TRAIN_DATA"),
    ({"TRAIN_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl"),
    ({"TRAIN_DATA": "TMP/dev.jsonl"}, "dev.jsonl, line 1: metadata.task"),
    ({"FULLY_ASYNC": "1"}, "FULLY_ASYNC"), ({"EVAL_INTERVAL": "5"}, "EVAL_INTERVAL=5"),
    ({"EVAL_DATA": "TMP/train.jsonl@[9:]", "EVAL_INTERVAL": "5"}, "EVAL_DATA"),
    ({"LORA_RANK": "16", "TP": "2", "TRAIN_PROCS": "2"}, "LORA_RANK=16"),
    ({"HF_CKPT": "/nowhere"}, "HF_CKPT='/nowhere'"), ({"AGENT": "nope"}, "AGENT='nope'"),
    ({"ENGINE_MAX_LEN": "40"}, "ENGINE_MAX_LEN"), ({"MEM_CHUNK_TOKENS": "50000"}, "MEM_CHUNK_TOKENS=50000"),
]


@pytest.mark.parametrize("env,message", REFUSED)
def test_settings_that_nothing_could_come_of_are_refused(tmp_path, env, message):
    env = {name: value.replace("TMP", str(tmp_path)) for name, value in env.items()}
    with pytest.raises(MemAgentError, match=message):
        checked(Config.from_env(settings(tmp_path) | env))


def test_a_loss_that_is_not_finite_ends_the_run_before_anything_is_saved_or_sent():
    data = {"tokens": [[1, 2]], "response_lengths": [1], "loss_masks": [[1]], "rollout_log_probs": [[0.0]],
            "rewards": [1.0], "rollout_ids": [0], "rollout_mask_sums": [1]}
    found = {"loss": math.inf, "grad_norm": math.nan}
    diverged = SimpleNamespace(log_probs=lambda rows: [], train_step=lambda *_: found)
    config = Config(kl_coef=0.0, save_path="/runs/mine", global_batch_size=1)
    with pytest.raises(MemAgentError, match=r"LR.*/runs/mine"):
        learn(config, diverged, Rollout(data, 1, {}))


class Source:
    """Rollouts whose engines do not come up."""

    def __init__(self, config, evaluate=False):
        pass

    def begin(self):
        raise ConfigError("no engine")

    def close(self):
        pass


def test_a_run_that_goes_on_leaves_its_settings_as_they_were_resolved(tmp_path, monkeypatch, capsys):
    """A converted model takes them along: those of a run that was refused never trained it."""
    monkeypatch.setattr("mem_agent.training.train.Rollouts", Source)
    monkeypatch.setattr("mem_agent.training.trainer.Trainer", lambda config: None)
    save = tmp_path / "save"
    env = settings(tmp_path, SAVE_PATH=str(save), MEM_CHUNK_TOKENS="77", SEED="5", TRAIN_DATA="train.jsonl")
    monkeypatch.chdir(tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["--check"]) == 0 and not save.exists()
    assert main([]) == 1 and "no engine" in capsys.readouterr().err
    left = load_yaml(save / "mem_agent.yaml")
    assert left == checked(Config.from_env()).replace(train_data=f"{tmp_path}/train.jsonl") and left.engine_max_len
    for name in env:
        monkeypatch.delenv(name)
    monkeypatch.chdir("/")
    assert main(["--check", "--config", str(save / "mem_agent.yaml")]) == 0


def test_the_pockets_chat_model_answers_while_the_run_lasts(monkeypatch):
    port = str(free_ports(1)[0])
    monkeypatch.setenv("POCKET_CHAT_PORT", port)
    with pocket_profile():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as reply:
            assert json.load(reply)["data"][0]["id"] == "frozen-chat"
        with pytest.raises(MemAgentError, match="POCKET_CHAT_PORT"), pocket_profile():
            pass
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models")
