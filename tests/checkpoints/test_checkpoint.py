"""Resuming is exact, a failed write leaves the last good checkpoint as it was."""

import errno
import json
import random
import shutil
import subprocess
from pathlib import Path

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
    assert {"common.pt", "metadata.json", ".metadata", "SHA256SUMS"} < {p.name for p in folder.iterdir()}
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
    for common in (None, {"args": object}, {"args": subprocess.Popen}):
        if common is not None:
            torch.save(common, folder / "common.pt")
            shutil.copy(save_path / "iter_0000007" / "metadata.json", folder)
        with pytest.raises(CheckpointError, match="was not written by this host; to start from its weights"):
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


@pytest.mark.parametrize("final", ["a folder", "a link to one", "a link to nothing"])
@pytest.mark.parametrize("left", ["a folder", "a link to one", "nothing"])
def test_a_checkpoint_takes_the_place_of_what_lies_there(tmp_path, final, left):
    """Of a run that was killed when it had written over one, and does that again; the links are people's."""
    (tmp_path / ".writing").mkdir()
    for name, what in (("iter_0000009", final), (".iter_0000009.replaced", left)):
        kept = tmp_path / f"kept{name}"
        if what != "a link to nothing":
            kept.mkdir()
            (kept / ".metadata").touch()
        if what.startswith("a link"):
            (tmp_path / name).symlink_to(kept)
        elif what == "a folder":
            shutil.copytree(kept, tmp_path / name)
    checkpoint._publish(tmp_path / ".writing", tmp_path / "iter_0000009")
    names = [path.name for path in tmp_path.iterdir() if not path.name.startswith("kept")]
    assert sorted(names) == ["iter_0000009", folders.TRACKER]
    assert (tmp_path / "iter_0000009" / "SHA256SUMS").is_file() and not (tmp_path / "iter_0000009").is_symlink()
    assert (tmp_path / "kept.iter_0000009.replaced" / ".metadata").is_file()


def test_a_failed_write_is_told_whatever_the_tracker_holds(trained, tmp_path, monkeypatch):
    (tmp_path / folders.TRACKER).write_text("99")
    with pytest.raises(CheckpointError, match=r"not written: .*No space left.*names iter_0000099, which is not there"):
        save_with_a_full_disk(tmp_path, trained[0], monkeypatch)


def save_with_a_full_disk(save_path: Path, trainer: Trainer, monkeypatch) -> None:
    def full(*args, **kwargs):
        Path(args[1], "__0_0.distcp").write_bytes(b"half")
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise dist_checkpointing.core.CheckpointingException("wrapped") from error

    monkeypatch.setattr(dist_checkpointing, "save", full)
    checkpoint.save(save_path, 8, trainer, STATE)


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
        (save_with_a_full_disk, "No space left on device"),
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


def test_a_path_that_cannot_be_a_folder_is_one_clear_line(trained, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="there is no earlier checkpoint") as error:
        checkpoint.save(tmp_path / "file", 0, trained[0], {})
    assert "\n" not in str(error.value)


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


def test_a_checkpoint_that_lacks_a_tensor_is_refused_by_its_name(trained, tmp_path):
    stranger = Trainer(make_config(make_tiny_model(tmp_path, architecture="qwen3")))
    with pytest.raises(CheckpointError, match=r"no tensor decoder\.layers\.self_attention\.q_layernorm\.weight"):
        checkpoint.load(trained[1], stranger)


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


def test_what_lies_among_old_checkpoints_ends_no_run(tmp_path, caplog, monkeypatch):
    """One moved to a larger disk, of which the link goes; a file; what another user owns."""
    checkpoints(tmp_path, 1, 2, 3, 4, 5)
    (tmp_path / "large disk").mkdir()
    (tmp_path / "iter_0000001").rename(tmp_path / "large disk" / "iter_0000001")
    (tmp_path / "iter_0000001").symlink_to("large disk/iter_0000001")
    (tmp_path / "iter_0000000").write_text("notes")
    (tmp_path / ".iter_0000006.writing").symlink_to("large disk")
    rmtree = shutil.rmtree

    def refused(path, *args, **kwargs):
        if path.name == "iter_0000002":
            raise PermissionError(1, "Operation not permitted", str(path))
        rmtree(path, *args, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", refused)
    folders.prune(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "iter_0000000", "iter_0000002", "iter_0000004", "iter_0000005", "large disk", folders.TRACKER]
    assert (tmp_path / "large disk" / "iter_0000001" / ".metadata").is_file()
    assert [f"{tmp_path / 'iter_0000002'} could not be removed" in said for said in caplog.messages] == [True]


def test_latest_follows_the_tracker(tmp_path):
    assert folders.latest(tmp_path) is None
    checkpoints(tmp_path, 4)
    assert folders.latest(tmp_path) == folders.resolve(tmp_path / "iter_0000004") == tmp_path / "iter_0000004"
    (tmp_path / folders.TRACKER).write_text("5")
    with pytest.raises(CheckpointError, match="names iter_0000005, which is not there"):
        folders.latest(tmp_path)
    with pytest.raises(CheckpointError, match="no torch_dist checkpoint"):
        folders.resolve(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["²", "", "-1", "1_0", "٣", "9" * 5000, "4 5", "\ud800", b"\xff\xfe", b"\0"])
def test_a_tracker_that_holds_no_number_is_one_line(tmp_path, content):
    checkpoints(tmp_path, 4, 9)
    raw = content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
    (tmp_path / folders.TRACKER).write_bytes(raw)
    with pytest.raises(CheckpointError, match=r"write the number of a checkpoint, 4 or 9$") as error:
        folders.latest(tmp_path)
    assert str(tmp_path / folders.TRACKER) in str(error.value) and len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("place", ["/dev/zero", "a folder"])
def test_a_tracker_that_is_no_file_is_one_line(tmp_path, place):
    checkpoints(tmp_path, 4, 9)
    (tmp_path / folders.TRACKER).unlink()
    (tmp_path / "a folder").mkdir()
    (tmp_path / folders.TRACKER).symlink_to(place)
    with pytest.raises(CheckpointError, match=r"is no file; in its place write the number of a checkpoint, 4 or 9$"):
        folders.latest(tmp_path)


def test_no_more_of_a_tracker_is_read_than_a_number_takes(tmp_path):
    checkpoints(tmp_path, 4, 9)
    with (tmp_path / folders.TRACKER).open("wb") as file:
        file.write(b" 4\n")
        file.truncate(2**40)  # a hole
    with pytest.raises(CheckpointError, match=r"holds '4\\n\\x00.*; write the number of a checkpoint, 4 or 9$"):
        folders.latest(tmp_path)


def test_a_converted_model_is_no_run_to_continue(tmp_path):
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / ".metadata").write_text("")
    (tmp_path / folders.TRACKER).write_text("release\n")
    with pytest.raises(CheckpointError, match="is a converted model, not a checkpoint of a run; set another"):
        train_run(Config(save_path=str(tmp_path)))
