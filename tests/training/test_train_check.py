"""What the embedded host refuses before anything starts, without servers."""

import json

import pytest

from mem_agent import eval_ruler_hqa
from mem_agent.config import Config, ConfigError, load_yaml
from mem_agent.serving import serve_engines
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.fake_host import make_model
from mem_agent.training.resume import Rollout, fingerprint
from mem_agent.training.train import checked, learn, main, resume, train

ROW = {"prompt": "q", "label": "a", "metadata": {"context": "c", "ground_truth": ["a"]}}


def settings(tmp_path, model="qwen3-0.6b", **env):
    """The environment of a run that could start; model and data are made."""
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(ROW)}\n" * 9)
    make_model(tmp_path / "model", model)
    return {"TRAIN_DATA": str(tmp_path / "train.jsonl"), "HF_CKPT": str(tmp_path / "model")} | env


REFUSED = [
    ({"TRAIN_DATA": ""}, "TRAIN_DATA"), ({"TRAIN_DATA": "/nowhere.jsonl"}, "/nowhere.jsonl"),
    ({"FULLY_ASYNC": "1"}, "FULLY_ASYNC"), ({"HOST_ARGS": "--x 1"}, "HOST_ARGS"),
    ({"EVAL_INTERVAL": "5"}, "EVAL_INTERVAL=5"), ({"EVAL_DATA": "dev.jsonl"}, "EVAL_DATA='dev.jsonl'"),
    ({"EVAL_DATA": "a/x.jsonl b/x.jsonl", "EVAL_INTERVAL": "5"}, "EVAL_DATA="),
    ({"EVAL_DATA": "/nowhere.jsonl", "EVAL_INTERVAL": "5"}, "EVAL_DATA: /nowhere.jsonl"),
    ({"LORA_RANK": "16", "TP": "2", "TRAIN_PROCS": "2"}, "LORA_RANK=16"),
    ({"HF_CKPT": "/nowhere"}, "HF_CKPT='/nowhere'"), ({"AGENT": "nope"}, "AGENT='nope'"),
    ({"ENGINE_MAX_LEN": "40"}, "ENGINE_MAX_LEN"),
    ({"TRAIN_PROCS": "32", "GLOBAL_BATCH_SIZE": "16"}, "GLOBAL_BATCH_SIZE=16"),
]


@pytest.mark.parametrize("env,message", REFUSED)
def test_settings_that_nothing_could_come_of_are_refused(tmp_path, env, message):
    with pytest.raises(MemAgentError) as error:
        checked(Config.from_env(settings(tmp_path) | env))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_rows_that_could_not_be_asked_are_refused_at_once(tmp_path):
    env, dev = settings(tmp_path), tmp_path / "dev.jsonl"
    dev.write_text(json.dumps(ROW | {"metadata": ROW["metadata"] | {"task": "multi-hop"}}))
    changes = [({"TRAIN_DATA": str(dev)}, "dev.jsonl, line 1: metadata.task"),
               ({"EVAL_DATA": str(dev), "EVAL_INTERVAL": "5"}, "dev.jsonl, line 1: metadata.task"),
               ({"EVAL_DATA": f"{tmp_path / 'train.jsonl'}@[9:]", "EVAL_INTERVAL": "5"}, "none of its 9 rows")]
    for change, message in changes:
        with pytest.raises(MemAgentError, match=message):
            checked(Config.from_env(env | change))


# --- a step that cannot be learned from -----------------------------------------------------------------------------


class Diverged:
    """A trainer whose ratios have left float32."""

    def log_probs(self, rows):
        return [[0.0] * row.response_length for row in rows]

    def train_step(self, rows, old, reference):
        return {"loss": float("inf"), "grad_norm": float("nan")}


def test_a_loss_that_is_not_finite_ends_the_run_before_anything_is_saved_or_sent():
    data = {"tokens": [[1, 2]], "response_lengths": [1], "loss_masks": [[1]], "rollout_log_probs": [[0.0]],
            "rewards": [1.0], "rollout_ids": [0], "rollout_mask_sums": [1]}
    config = Config(kl_coef=0.0, save_path="/runs/mine", rollout_batch_size=1, n_samples_per_prompt=1)
    with pytest.raises(MemAgentError) as error:
        learn(config, Diverged(), Rollout(data, 1, {}))
    assert "LR" in str(error.value) and "/runs/mine" in str(error.value)


# --- the settings that a run leaves ---------------------------------------------------------------------------------


class Source:
    """Rollouts whose engines do not come up."""

    def __init__(self, config, evaluate=False):
        pass

    def begin(self):
        raise ConfigError("no engine")

    def close(self):
        pass


@pytest.fixture
def no_servers(monkeypatch):
    monkeypatch.setattr("mem_agent.training.train.Rollouts", Source)
    monkeypatch.setattr("mem_agent.training.trainer.Trainer", lambda config: None)


def test_a_run_leaves_its_settings_as_they_were_resolved(tmp_path, no_servers, monkeypatch, capsys):
    save = tmp_path / "save"
    env = settings(tmp_path, SAVE_PATH=str(save), MEM_CHUNK_TOKENS="77", SEED="5", TRAIN_DATA="train.jsonl")
    monkeypatch.chdir(tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert main(["--check"]) == 0 and not save.exists()
    assert main([]) == 1 and "no engine" in capsys.readouterr().err
    left = load_yaml(save / "mem_agent.yaml")
    assert left == checked(Config.from_env()).replace(train_data=f"{tmp_path}/train.jsonl")
    assert left.engine_max_len and not list(save.glob(".*.tmp"))
    for name in env:
        monkeypatch.delenv(name)
    monkeypatch.chdir("/")
    assert main(["--check", "--config", str(save / "mem_agent.yaml")]) == 0


def test_only_a_run_that_goes_on_changes_the_settings_it_left(tmp_path, no_servers, monkeypatch):
    """A converted model takes them along: those of a run that was refused or is over never trained it."""
    config = Config(save_path=str(tmp_path), num_rollout=3)
    left = tmp_path / "mem_agent.yaml"
    left.write_text("as it was")

    def refuse(*_):
        raise ConfigError("it ends here")

    monkeypatch.setattr("mem_agent.training.train.resume", refuse)
    with pytest.raises(ConfigError, match="it ends here"):
        train(config)
    monkeypatch.setattr("mem_agent.training.train.resume", resume)
    (tmp_path / "iter_0000002").mkdir()
    (tmp_path / "iter_0000002" / ".metadata").touch()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")
    train(config)
    assert left.read_text() == "as it was"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("mem_agent.training.train.resume", lambda config, trainer: (3, 0))
    monkeypatch.setattr("mem_agent.training.train.sync", refuse)
    with pytest.raises(ConfigError, match="it ends here"):
        train(config.replace(num_rollout=4))
    assert left.read_text() == "as it was"


# --- the engine's length --------------------------------------------------------------------------------------------


def test_prompts_that_no_engine_of_this_model_holds_are_refused_before_anything_starts(tmp_path, capsys, monkeypatch):
    """As each of their turns would be refused (``long_prompt``) once the engines are up."""
    prompts = tmp_path / "p.yaml"
    prompts.write_text("memory: '" + "one more rule " * 900 + "{problem} {section} {memory}'")
    env = settings(tmp_path, MEM_CHUNK_TOKENS="200", MEM_MAX_MEMORY="100", MEM_MAX_QUESTION="50")
    model = make_model(tmp_path / "model", "qwen3-0.6b", max_position_embeddings=2000)
    found = checked(Config.from_env(env))
    assert found.engine_max_len < 1000
    given = checked(Config.from_env(env | {"ENGINE_MAX_LEN": str(found.engine_max_len)}))
    assert fingerprint(found) == fingerprint(given), "the same run"
    for name, value in (env | {"MEM_PROMPTS": str(prompts)}).items():
        monkeypatch.setenv(name, value)
    command = f"--data-root {tmp_path} --length 50 --model {model} --output {tmp_path / 'out'}"
    assert [main([]), eval_ruler_hqa.main(command.split()), serve_engines.main(["--model", str(model)])] == [1, 1, 2]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all("AGENT=memagent" in line and "MEM_PROMPTS" in line for line in lines)
