"""Resuming is exact, a failed write leaves the last good checkpoint as it was, damage is noticed and said."""

import resource
import shutil
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter, save_state_dict

from mem_agent.checkpoints import checkpoint, folders
from mem_agent.checkpoints.checkpoint import ModelTensors
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.config import Config
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


@pytest.mark.parametrize("steps", [0, 2])
def test_a_resumed_run_continues_bit_for_bit(model, tmp_path, steps):
    rows, config = make_rows(), make_config(model, lr_warmup_steps=10)
    trainer, resumed = Trainer(config), Trainer(config)
    train(trainer, rows, steps)
    checkpoint.save(tmp_path, 7, trainer, STATE)
    continued = train(trainer, rows, 2)
    assert checkpoint.load(tmp_path, resumed) == STATE
    assert train(resumed, rows, 2) == continued and same_weights(resumed, trainer)
    assert continued[0]["lr"] == pytest.approx(config.lr * steps / 10)


def test_training_starts_from_a_checkpoint_of_this_pack_or_of_a_host(trained, tmp_path):
    """The host's with a tensor for each layer, padding and another number format; it cannot be continued."""
    trainer, save_path = trained
    started, rows = Trainer(make_config(trainer.config.hf_ckpt, torch_dist=str(save_path))), make_rows()
    assert same_weights(started, trainer)
    assert started.reference_log_probs(rows) == started.log_probs(rows) == trainer.log_probs(rows)
    tensors = ModelTensors(save_path / "iter_0000007")
    named = {name: tensors.read(name).bfloat16() for name in tensors.shapes}
    embedding = named["embedding.word_embeddings.weight"]
    named["embedding.word_embeddings.weight"] = torch.cat([embedding, torch.ones_like(embedding)])
    folder = tmp_path / "release"
    folder.mkdir()
    save_state_dict(named, FileSystemWriter(folder), no_dist=True)
    torch.save({"iteration": 1}, folder / "common.pt")
    (tmp_path / folders.TRACKER).write_text("release\n")
    checkpoint.load_weights(tmp_path, started.bridge, started.model)
    weights = trainer.export_hf()
    for name, tensor in started.export_hf().items():
        assert torch.equal(tensor, weights[name].bfloat16().float()), name
    with pytest.raises(CheckpointError, match=r"SAVE_PATH.*TORCH_DIST"):
        train_run(Config(save_path=str(tmp_path)))


def test_a_failed_write_leaves_the_last_good_checkpoint(trained, tmp_path):
    """A real error of the operating system, inside mcore's writer: of a limit, as on a full disk."""
    trainer, save_path = trained
    shutil.copytree(save_path, tmp_path, dirs_exist_ok=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(CheckpointError, match=str(tmp_path / "iter_0000008")):
            checkpoint.save(tmp_path, 8, trainer, STATE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob(".iter_*"))
    assert folders.latest(tmp_path) == tmp_path / "iter_0000007"
    assert checkpoint.save(tmp_path, 8, trainer, STATE) == folders.latest(tmp_path) == tmp_path / "iter_0000008"


@pytest.mark.parametrize("there,tracker,keep,left", [
    ((1, 2, 3, 10), 10, 2, [3, 10]),
    ((1, 2, 3, 8, 9), 3, 2, [2, 3, 8, 9]),  # set back to 3: those behind it do not push out those before
])
def test_prune_keeps_the_newest_and_always_the_latest(tmp_path, there, tracker, keep, left):
    for name in (*(f"iter_{iteration:07d}" for iteration in there), ".iter_0000011.writing"):
        (tmp_path / name).mkdir()
    (tmp_path / folders.TRACKER).write_text(str(tracker))
    folders.prune(tmp_path, keep)
    assert [folders.number_of(folder) for folder in folders.numbered(tmp_path)] == left
    assert not list(tmp_path.glob(".iter_*"))


# --- damage ----------------------------------------------------------------------------------------------------------


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    """One byte of a tensor, which torch reads without a look at its checksum."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)


@pytest.mark.parametrize(("name", "damage"), [
    ("__0_0.distcp", flipped), (".metadata", cut), ("common.pt", cut), ("metadata.json", Path.unlink),
])
def test_a_run_goes_on_from_the_newest_readable_checkpoint_and_says_so(trained, tmp_path, caplog, name, damage):
    """Of three checkpoints the second has lost its tensors as well."""
    first, second, third = (tmp_path / f"iter_000000{iteration}" for iteration in (3, 5, 7))
    for folder in (first, second, third):
        shutil.copytree(trained[1] / "iter_0000007", folder)
    (tmp_path / folders.TRACKER).write_text("7")
    cut(second / "__0_0.distcp")
    damage(third / name)
    resumed = Trainer(trained[0].config)
    assert checkpoint.load(tmp_path, resumed) == STATE
    of_third, of_second = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert str(third) in of_third and name in of_third and str(second) in of_second
    assert same_weights(resumed, trained[0])
