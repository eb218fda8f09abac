"""Resuming is exact, a failed write leaves the last good checkpoint as it was, damage is noticed and said."""

import errno
import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
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


def same_weights(one: Trainer, other: Trainer) -> bool:
    weights = other.export_hf()
    return all(torch.equal(tensor, weights[name]) for name, tensor in one.export_hf().items())


def test_a_resumed_run_continues_bit_for_bit(model, tmp_path):
    rows, config = make_rows(), make_config(model, lr_warmup_steps=10)
    trainer = Trainer(config)
    train(trainer, rows, 2)
    checkpoint.save(tmp_path, 7, trainer, STATE)
    drawn = random.random(), np.random.rand(), torch.rand(1).item()
    continued = train(trainer, rows, 2)

    resumed = Trainer(config)
    assert checkpoint.load(tmp_path, resumed) == STATE
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == drawn
    assert train(resumed, rows, 2) == continued and same_weights(resumed, trainer)
    assert continued[0]["lr"] == pytest.approx(config.lr * 2 / 10)


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
    assert same_weights(started, trainer)
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
    torch.save({"iteration": 1}, folder / "common.pt")
    (tmp_path / folders.TRACKER).write_text("release")
    started = Trainer(make_config(trainer.config.hf_ckpt, torch_dist=str(tmp_path)))
    weights = trainer.export_hf()
    for name, tensor in started.export_hf().items():
        assert torch.equal(tensor, weights[name].bfloat16().float()), name
    with pytest.raises(CheckpointError, match="TORCH_DIST"):
        checkpoint.load(tmp_path, started)


@pytest.mark.parametrize("other,tensor", [({"vocab": 600}, "word_embeddings"), ({"layers": 3}, "decoder.layers.2")])
def test_a_checkpoint_of_another_model_is_refused_before_loading(trained, tmp_path, other, tensor):
    stranger = Trainer(make_config(make_tiny_model(tmp_path, architecture="qwen2", **other)))
    with pytest.raises(CheckpointError, match=f"HF_CKPT.*{tensor}"):
        checkpoint.load(trained[1], stranger)
    with pytest.raises(CheckpointError, match=f"HF_CKPT.*{tensor}"):
        checkpoint.load_weights(trained[1], stranger.bridge, stranger.model)


# --- failing and killed writes ---------------------------------------------------------------------------------------


def test_killed_while_a_checkpoint_is_written_over_the_run_goes_on_from_one_that_is_there(tmp_path, monkeypatch):
    for number in (4, 9):
        (tmp_path / f"iter_{number:07d}").mkdir()
    (tmp_path / folders.TRACKER).write_text("9")
    (tmp_path / ".writing").mkdir()

    def killed(path, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        checkpoint._publish(tmp_path / ".writing", tmp_path / "iter_0000009")
    assert folders.newest_of_run(tmp_path).name == "iter_0000004"
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


@pytest.mark.parametrize("failing_save", [save_over_a_file_size_limit, save_without_a_tracker])
def test_a_failed_write_leaves_the_last_good_checkpoint(model, trained, tmp_path, monkeypatch, failing_save):
    trainer, _ = trained
    checkpoint.save(tmp_path, 7, trainer, STATE)
    with pytest.raises(CheckpointError, match=str(tmp_path / "iter_0000008")), monkeypatch.context() as patch:
        failing_save(tmp_path, trainer, patch)
    assert not list(tmp_path.glob(".iter_*"))
    assert folders.latest(tmp_path) == tmp_path / "iter_0000007"
    assert checkpoint.load(tmp_path, Trainer(make_config(model))) == STATE
    assert checkpoint.save(tmp_path, 8, trainer, STATE) == folders.latest(tmp_path) == tmp_path / "iter_0000008"


def test_saving_reads_no_tensor_back(trained, tmp_path, monkeypatch):
    opened, path_open = [], Path.open

    def seen(path, mode="r", *args, **options):
        opened.extend([path.name] if "r" in mode else [])
        return path_open(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", seen)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("read back"))
    checkpoint.save(tmp_path, 8, trained[0], STATE)
    assert not [name for name in opened if name.endswith(".distcp")]


# --- finding ---------------------------------------------------------------------------------------------------------


def checkpoints(save_path: Path, *iterations: int, tracker: int | None = None) -> None:
    for iteration in iterations:
        (save_path / f"iter_{iteration:07d}").mkdir(parents=True)
    (save_path / folders.TRACKER).write_text(str(tracker or max(iterations)))


@pytest.mark.parametrize("there,tracker,keep,left", [
    ((1, 2, 3, 10), 10, 0, [1, 2, 3, 10]),
    ((1, 2, 3, 10), 10, 2, [3, 10]),
    ((3, 10), 3, 1, [3, 10]),
    ((1, 2, 3, 8, 9), 3, 2, [2, 3, 8, 9]),  # set back to 3: those behind it do not push out those before
])
def test_prune_keeps_the_newest_and_always_the_latest(tmp_path, there, tracker, keep, left):
    checkpoints(tmp_path, *there, tracker=tracker)
    (tmp_path / ".iter_0000011.writing").mkdir()
    folders.prune(tmp_path, keep)
    assert [folders.number_of(folder) for folder in folders.numbered(tmp_path)] == left
    assert not list(tmp_path.glob(".iter_*"))


def test_latest_follows_the_tracker(tmp_path):
    assert folders.latest(tmp_path) is None
    checkpoints(tmp_path, 4)
    assert folders.latest(tmp_path) == folders.resolve(tmp_path / "iter_0000004") == tmp_path / "iter_0000004"
    (tmp_path / folders.TRACKER).write_text("5")
    with pytest.raises(CheckpointError, match="iter_0000005"):
        folders.latest(tmp_path)
    with pytest.raises(CheckpointError, match="nowhere"):
        folders.resolve(tmp_path / "nowhere")


def test_a_converted_model_is_no_run_to_continue(tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / folders.TRACKER).write_text("release\n")
    with pytest.raises(CheckpointError, match="SAVE_PATH"):
        train_run(Config(save_path=str(tmp_path)))


# --- damage ----------------------------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    """One byte of a tensor, which torch reads without a look at its checksum."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


@pytest.fixture
def copies(trained, tmp_path) -> Path:
    """A run with three checkpoints, the first and the last alike, the one between without its tensors."""
    for iteration in (3, 5, 7):
        shutil.copytree(trained[1] / "iter_0000007", tmp_path / f"iter_{iteration:07d}")
    cut(tmp_path / "iter_0000005" / "__0_0.distcp")
    (tmp_path / folders.TRACKER).write_text("7")
    return tmp_path


@pytest.mark.parametrize(("name", "damage"), [
    ("__0_0.distcp", Path.unlink), ("__0_0.distcp", cut), ("__0_0.distcp", flipped), (".metadata", cut),
    ("common.pt", cut), ("common.pt", Path.unlink), ("common.pt", flipped), ("metadata.json", cut),
    ("metadata.json", Path.unlink),
])
def test_a_run_goes_on_from_the_newest_checkpoint_that_can_be_read_and_says_so(
    model, trained, copies, caplog, name, damage
):
    damage(copies / "iter_0000007" / name)
    resumed = Trainer(make_config(model))
    assert checkpoint.load(copies, resumed) == STATE
    first, second = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert str(copies / "iter_0000007") in first and name in first and str(copies / "iter_0000005") in second
    assert same_weights(resumed, trained[0])
    with pytest.raises(CheckpointError, match="iter_0000007"):
        checkpoint.load(copies / "iter_0000007", resumed)


def test_all_ranks_skip_the_checkpoint_that_rank_0_finds_damaged(model, trained, copies, monkeypatch):
    """Seen from rank 1, which looks at no file before rank 0 has decided."""
    common = checkpoint._read_common(copies / "iter_0000003")
    decisions = [folders.DamagedCheckpoint("iter_0000007"), folders.DamagedCheckpoint("iter_0000005"), common]

    def from_rank_0(box, src):
        box[0] = decisions.pop(0)

    resumed = Trainer(make_config(model))
    rank_1 = SimpleNamespace(get_rank=lambda: 1, broadcast_object_list=from_rank_0)
    monkeypatch.setattr(checkpoint, "dist", rank_1)
    assert checkpoint.load(copies, resumed) == STATE
    assert not decisions and same_weights(resumed, trained[0])
