"""Resuming is exact, a failed write leaves the last good checkpoint as it was."""

import errno
import json
import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from torch.distributed.checkpoint import FileSystemWriter, save_state_dict

from mem_agent.checkpoints import checkpoint, folders
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.config import Config
from mem_agent.tests.helpers.small_files import files_of_at_most
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.train import train as train_run
from mem_agent.training.trainer import Trainer

STATE = {"rollout": 7, "order": [3, 1, 2], "note": "ä"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), architecture="qwen2")


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory) -> tuple[Trainer, Path]:
    """A trainer after two steps, and a folder with its checkpoint; do not train it further."""
    trainer, save_path = Trainer(make_config(model)), tmp_path_factory.mktemp("run")
    train(trainer, make_rows(), 2)
    checkpoint.save(save_path, 7, trainer, STATE)
    return trainer, save_path


def test_a_resumed_run_continues_bit_for_bit(model, tmp_path):
    rows, config = make_rows(), make_config(model, lr_warmup_steps=10)
    trainer = Trainer(config)
    train(trainer, rows, 2)
    checkpoint.save(tmp_path, 7, trainer, STATE)
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    continued, weights = train(trainer, rows, 2), trainer.export_hf()

    resumed = Trainer(config)
    assert checkpoint.load(tmp_path, resumed) == STATE
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn
    assert train(resumed, rows, 2) == continued
    assert continued[0]["lr"] == pytest.approx(config.lr * 2 / 10)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in resumed.export_hf().items())


def test_a_checkpoint_before_the_first_step_resumes_too(model, tmp_path):
    trainer = Trainer(make_config(model))
    checkpoint.save(tmp_path, 0, trainer, {})
    resumed = Trainer(make_config(model))
    assert checkpoint.load(tmp_path, resumed) == {}
    assert train(resumed, make_rows(), 2) == train(trainer, make_rows(), 2)


def test_the_layout_is_that_of_the_hosts(trained):
    _, save_path = trained
    assert sorted(p.name for p in save_path.iterdir()) == ["iter_0000007", "latest_checkpointed_iteration.txt"]
    assert (save_path / "latest_checkpointed_iteration.txt").read_text() == "7"
    folder = save_path / "iter_0000007"
    assert {"common.pt", "metadata.json", ".metadata"} < {p.name for p in folder.iterdir()}
    assert json.loads((folder / "metadata.json").read_text())["sharded_backend"] == "torch_dist"
    common = torch.load(folder / "common.pt", weights_only=False)
    assert (common["iteration"], common["checkpoint_version"]) == (7, 3.0)
    args = common["args"]
    assert (args.num_layers, args.num_attention_heads, args.num_query_groups, args.kv_channels) == (2, 2, 1, 32)
    assert (args.hidden_size, args.vocab_size, args.num_experts, args.q_lora_rank) == (64, 512, None, None)
    stored = {k for k in dist_checkpointing.load_tensors_metadata(str(folder)) if not k.startswith("optimizer")}
    assert stored == {
        "embedding.word_embeddings.weight",
        "output_layer.weight",
        "decoder.final_layernorm.weight",
        "decoder.layers.self_attention.linear_qkv.weight",
        "decoder.layers.self_attention.linear_qkv.bias",
        "decoder.layers.self_attention.linear_qkv.layer_norm_weight",
        "decoder.layers.self_attention.linear_proj.weight",
        "decoder.layers.mlp.linear_fc1.weight",
        "decoder.layers.mlp.linear_fc1.layer_norm_weight",
        "decoder.layers.mlp.linear_fc2.weight",
    }


def test_training_starts_from_the_weights_of_a_checkpoint(model, trained):
    trainer, save_path = trained
    started = Trainer(make_config(model, torch_dist=str(save_path)))
    weights = trainer.export_hf()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in started.export_hf().items())
    rows = make_rows()
    assert started.reference_log_probs(rows) == started.log_probs(rows) == trainer.log_probs(rows)


def test_weights_alone_load_from_a_host_with_other_naming_padding_and_number_format(trained, tmp_path):
    trainer, save_path = trained
    tensors = ModelTensors(save_path / "iter_0000007")
    named = {f"module.{name}": tensors.read(name).bfloat16() for name in tensors.shapes}
    embedding = named["module.embedding.word_embeddings.weight"]
    named["module.embedding.word_embeddings.weight"] = torch.cat([embedding, torch.ones_like(embedding)])
    folder = tmp_path / "release"
    folder.mkdir()
    save_state_dict(named, FileSystemWriter(folder), no_dist=True)
    (tmp_path / folders.TRACKER).write_text("release")
    started = Trainer(make_config(trainer.config.hf_ckpt, torch_dist=str(tmp_path)))
    weights = trainer.export_hf()
    for name, tensor in started.export_hf().items():
        assert torch.equal(tensor, weights[name].bfloat16().float()), name
    with pytest.raises(CheckpointError, match="was not written by this host"):
        checkpoint.load(tmp_path, started)


@pytest.mark.parametrize("there,goes_on", [((4, 9), "iter_0000004"), ((9,), None)])
def test_killed_while_a_checkpoint_is_written_over_the_run_goes_on_from_one_that_is_there(
    there, goes_on, tmp_path, monkeypatch
):
    for number in there:
        (tmp_path / f"iter_{number:07d}").mkdir()
    (tmp_path / folders.TRACKER).write_text("9")
    (tmp_path / ".writing").mkdir()
    rename = Path.rename

    def killed(path, target):
        if path.name == ".writing":
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        checkpoint._publish(tmp_path / ".writing", tmp_path / "iter_0000009")
    newest = folders.newest_of_run(tmp_path)
    assert (newest and newest.name) == goes_on
    checkpoint._publish(tmp_path / ".writing", tmp_path / "iter_0000009")
    assert folders.newest_of_run(tmp_path).name == "iter_0000009"


def save_over_a_file_size_limit(save_path: Path, trainer: Trainer, monkeypatch) -> None:
    """A real error of the operating system, inside mcore's writer processes."""
    with files_of_at_most(100_000):
        checkpoint.save(save_path, 8, trainer, STATE)


def save_without_a_tracker(save_path: Path, trainer: Trainer, monkeypatch) -> None:
    replace = Path.replace

    def no_replace(path, target):
        if target.name == folders.TRACKER:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", no_replace)
    checkpoint.save(save_path, 8, trainer, STATE)


@pytest.mark.parametrize(
    ("failing_save", "cause"),
    [
        (save_over_a_file_size_limit, "a file was cut short (disk full, quota or size limit)"),
        (save_without_a_tracker, "No space left on device"),
    ],
)
def test_a_failed_write_leaves_the_last_good_checkpoint(model, trained, tmp_path, monkeypatch, failing_save, cause):
    trainer, _ = trained
    checkpoint.save(tmp_path, 7, trainer, STATE)
    with pytest.raises(CheckpointError) as error, monkeypatch.context() as patch:
        failing_save(tmp_path, trainer, patch)
    message = str(error.value)
    assert "\n" not in message and cause in message and "free disk space" in message
    assert str(tmp_path / "iter_0000008") in message and f"{tmp_path / 'iter_0000007'} is intact" in message
    assert not list(tmp_path.glob(".iter_*"))
    assert folders.latest(tmp_path) == tmp_path / "iter_0000007"
    assert checkpoint.load(tmp_path, Trainer(make_config(model))) == STATE
    assert checkpoint.save(tmp_path, 8, trainer, STATE) == folders.latest(tmp_path) == tmp_path / "iter_0000008"


@pytest.mark.parametrize(
    ("other", "tensor", "found", "needed"),
    [
        ({"vocab": 600}, "embedding.word_embeddings.weight", "(512, 64)", "(600, 64)"),
        ({"hidden": 32}, "embedding.word_embeddings.weight", "(512, 64)", "(512, 32)"),
        ({"layers": 3}, "decoder.layers", "(2, 64", "(3, 64"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_before_loading(trained, tmp_path, other, tensor, found, needed):
    stranger = Trainer(make_config(make_tiny_model(tmp_path, architecture="qwen2", **other)))
    before = stranger.export_hf()
    with pytest.raises(CheckpointError) as error:
        checkpoint.load(trained[1], stranger)
    message = str(error.value)
    assert tensor in message and found in message and needed in message and "\n" not in message
    assert all(torch.equal(value, before[name]) for name, value in stranger.export_hf().items())
    with pytest.raises(CheckpointError, match=r"does not fit the model of HF_CKPT: (mis-shaped|missing)") as error:
        checkpoint.load_weights(trained[1], stranger.bridge, stranger.model)
    assert "\n" not in str(error.value)


# --- finding ---------------------------------------------------------------------------------------------------------


def checkpoints(save_path: Path, *iterations: int) -> None:
    for iteration in iterations:
        folder = save_path / f"iter_{iteration:07d}"
        folder.mkdir(parents=True)
        (folder / ".metadata").write_text("")
    (save_path / folders.TRACKER).write_text(str(max(iterations)))


def test_prune_keeps_the_newest_and_always_the_latest(tmp_path):
    checkpoints(tmp_path, 1, 2, 3, 10)
    (tmp_path / ".iter_0000011.writing").mkdir()
    conversion = tmp_path / ".iter_0000003-hf.writing"  # of convert-to-hf.sh with OUTPUT beside the checkpoints
    conversion.mkdir()
    folders.prune(tmp_path, 0)
    assert len(list(tmp_path.glob("iter_*"))) == 4
    folders.prune(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        conversion.name, "iter_0000003", "iter_0000010", folders.TRACKER
    ]
    (tmp_path / folders.TRACKER).write_text("3")
    folders.prune(tmp_path, 1)
    assert folders.latest(tmp_path) == tmp_path / "iter_0000003"


def test_checkpoints_behind_which_a_run_was_set_back_do_not_push_out_those_before(tmp_path):
    checkpoints(tmp_path, 1, 2, 3, 8, 9)
    (tmp_path / folders.TRACKER).write_text("3")
    folders.prune(tmp_path, 2)
    assert [folders.number_of(folder) for folder in folders.numbered(tmp_path)] == [2, 3, 8, 9]


def test_latest_follows_the_tracker(tmp_path):
    assert folders.latest(tmp_path) is None
    checkpoints(tmp_path, 4)
    assert folders.latest(tmp_path) == folders.resolve(tmp_path / "iter_0000004") == tmp_path / "iter_0000004"
    (tmp_path / folders.TRACKER).write_text("5")
    with pytest.raises(CheckpointError, match="names iter_0000005, which is not there"):
        folders.latest(tmp_path)
    with pytest.raises(CheckpointError, match="no torch_dist checkpoint"):
        folders.resolve(tmp_path / "nowhere")


def test_a_converted_model_is_no_run_to_continue(tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / ".metadata").write_text("")
    (tmp_path / folders.TRACKER).write_text("release\n")
    with pytest.raises(CheckpointError, match="is a converted model, not a checkpoint of a run; set another"):
        train_run(Config(save_path=str(tmp_path)))


# --- damage ----------------------------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    """One byte of a tensor, which torch reads without a look at its checksum."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


DAMAGES = [("__0_0.distcp", Path.unlink), ("__0_0.distcp", cut), ("__0_0.distcp", flipped),
           (".metadata", cut), ("common.pt", cut), ("metadata.json", cut)]


@pytest.fixture
def copies(trained, tmp_path) -> Path:
    """A run with three checkpoints, the first and the last alike, the one between without its tensors."""
    for iteration in (3, 5, 7):
        shutil.copytree(trained[1] / "iter_0000007", tmp_path / f"iter_{iteration:07d}")
    cut(tmp_path / "iter_0000005" / "__0_0.distcp")
    (tmp_path / folders.TRACKER).write_text("7")
    return tmp_path


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_run_goes_on_from_the_newest_checkpoint_that_can_be_read_and_says_so(
    model, trained, copies, caplog, name, damage
):
    damage(copies / "iter_0000007" / name)
    resumed = Trainer(make_config(model))
    assert checkpoint.load(copies, resumed) == STATE
    first, second = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert str(copies / "iter_0000007") in first and str(copies / "iter_0000005") in second
    weights = trained[0].export_hf()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in resumed.export_hf().items())
    with pytest.raises(CheckpointError, match="iter_0000007"):
        checkpoint.load(copies / "iter_0000007", resumed)


# --- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CheckpointError("x"), OSError(28, "x"), KeyError("x")])
def test_any_error_of_the_first_rank_is_sent_to_the_others(monkeypatch, error):
    """Which would wait for it in the broadcast."""
    sent: list = []
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda outcome, src: sent.append(pickle.dumps(outcome)))

    def fails():
        raise error

    with pytest.raises(Exception, match="x"):
        checkpoint.on_first_rank(fails)
    result, problem = pickle.loads(sent[0])[0]
    assert result is None and "x" in str(problem)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "broadcast_object_list", lambda outcome, src: outcome.__setitem__(0, (None, problem)))
    with pytest.raises(type(problem), match="x"):
        checkpoint.on_first_rank(fails)
