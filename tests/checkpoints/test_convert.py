"""Checkpoints become Hugging Face folders bit for bit, or nothing at all."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import FileSystemWriter, save_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.checkpoints import checkpoint, folders
from mem_agent.checkpoints.bridge import build_bridge, expected_tensors
from mem_agent.checkpoints.complete_folder import OutputRefused, complete_folder
from mem_agent.checkpoints.convert import ConvertError, convert, main
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.checkpoints.unreplaced import FolderReplaced
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer


@pytest.fixture(scope="module", params=[("qwen3", True), ("qwen2", False), ("llama", True)], ids=str)
def run(request, tmp_path_factory) -> tuple[Path, Path, dict[str, torch.Tensor]]:
    """(model folder, run folder with one trained checkpoint, the trained weights)."""
    architecture, tied = request.param
    folder = tmp_path_factory.mktemp("model")
    model = make_tiny_model(folder, architecture=architecture, tied=tied, heads=4, kv_heads=2)
    trainer, save_path = Trainer(make_config(model)), tmp_path_factory.mktemp("run")
    train(trainer, make_rows(), 1)
    checkpoint.save(save_path, 3, trainer, {})
    return model, save_path, trainer.export_hf()


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> tuple[Path, dict[str, torch.Tensor]]:
    """A model folder and its tensors under their names in a checkpoint, one per layer."""
    model = make_tiny_model(tmp_path_factory.mktemp("model"), architecture="qwen3", tied=True)
    trainer, save_path = Trainer(make_config(model)), tmp_path_factory.mktemp("run")
    checkpoint.save(save_path, 0, trainer, {})
    tensors = ModelTensors(save_path / "iter_0000000")
    return model, {name: tensors.read(name) for name in tensors.shapes}


def write_checkpoint(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    save_state_dict(tensors, FileSystemWriter(folder), no_dist=True)
    return folder


def same_weights(folder: Path, weights: dict[str, torch.Tensor]) -> bool:
    found = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    return set(found) == set(weights) and all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize("shard_size", [5 * 10**9, 50_000])
def test_a_trained_checkpoint_converts_bit_for_bit(run, tmp_path, shard_size):
    model, save_path, weights = run
    convert(save_path / "iter_0000003", model, tmp_path / "out", shard_size=shard_size)
    assert same_weights(tmp_path / "out", weights)
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(loaded[1].values())
    assert torch.equal(loaded[0].get_input_embeddings().weight, weights["model.embed_tokens.weight"])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    chat = [{"role": "user", "content": "Where is Anna?"}]
    assert tokenizer.apply_chat_template(chat) == AutoTokenizer.from_pretrained(model).apply_chat_template(chat)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_shards_keep_to_their_size_and_are_indexed(run, tmp_path):
    model, save_path, weights = run
    convert(save_path, model, tmp_path / "out", shard_size=50_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(weights)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in weights.values())
    for file in set(index["weight_map"].values()):
        tensors = load_file(tmp_path / "out" / file)
        qkv_or_gate_up = sum(t.nbytes for t in tensors.values()) <= 50_000 or len(tensors) <= 3
        assert qkv_or_gate_up, file


def test_the_number_format_is_the_models_or_the_one_asked_for(run, tmp_path):
    model, save_path, weights = run
    convert(save_path, model, tmp_path / "out", dtype="bfloat16")
    assert same_weights(tmp_path / "out", {name: tensor.bfloat16() for name, tensor in weights.items()})
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    convert(save_path, tmp_path / "out", tmp_path / "again")
    assert same_weights(tmp_path / "again", {name: tensor.bfloat16() for name, tensor in weights.items()})


def test_the_folder_above_stands_for_the_checkpoint_its_tracker_names(run, tmp_path):
    model, save_path, weights = run
    assert convert(save_path, model, tmp_path / "out") == save_path / "iter_0000003"
    released = tmp_path / "released"
    shutil.copytree(save_path / "iter_0000003", released / "release")
    (released / folders.TRACKER).write_text("release\n")
    assert convert(released, model, tmp_path / "out2") == released / "release"
    assert same_weights(tmp_path / "out2", weights)


@pytest.mark.parametrize("prefix", ["", "module.", "model.module."])
@pytest.mark.parametrize("per_layer", [True, False], ids=["per-layer", "stacked"])
def test_all_namings_of_a_checkpoint_are_read(plain, tmp_path, prefix, per_layer):
    model, tensors = plain
    if not per_layer:
        parameters = {name.split(".", 3)[3] for name in tensors if name.startswith("decoder.layers.")}
        layers = {p: torch.stack([tensors[f"decoder.layers.{i}.{p}"] for i in range(2)]) for p in parameters}
        tensors = {n: t for n, t in tensors.items() if not n.startswith("decoder.layers.")}
        tensors |= {f"decoder.layers.{parameter}": tensor for parameter, tensor in layers.items()}
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    named |= {"optimizer.state.exp_avg.decoder.final_layernorm.weight": torch.zeros(64), "rng_state": torch.zeros(3)}
    source = write_checkpoint(tmp_path / "iter_0000001", named)
    convert(source, model, tmp_path / "out")
    assert same_weights(tmp_path / "out", load_file(model / "model.safetensors"))


def test_vocabulary_padding_is_cut_off(plain, tmp_path):
    model, tensors = plain
    embedding = tensors["embedding.word_embeddings.weight"]
    padded = tensors | {"embedding.word_embeddings.weight": torch.cat([embedding, torch.ones(128, 64)])}
    convert(write_checkpoint(tmp_path / "iter_0000001", padded), model, tmp_path / "out")
    assert same_weights(tmp_path / "out", load_file(model / "model.safetensors"))


LAYER = "decoder.layers.1.mlp.linear_fc2.weight"
EMBEDDING, OUTPUT_LAYER = "embedding.word_embeddings.weight", "output_layer.weight"
MISFITS = [
    ({LAYER: None}, f"missing: {LAYER} [64, 128]; HF_CKPT"),
    ({LAYER.replace("1", "2"): (64, 128)}, "extra: decoder.layers.2.mlp.linear_fc2.weight [64, 128]; HF_CKPT"),
    ({LAYER: (64, 127), "decoder.final_layernorm.weight": (65,)}, "[65], the model has [64] (and 1 more); HF_CKPT"),
    ({LAYER: None, EMBEDDING: (500, 64)}, f"mis-shaped: {EMBEDDING} is [500, 64], the model has [512, 64], and only"),
    ({EMBEDDING: (512, 65)}, f"mis-shaped: {EMBEDDING} is [512, 65], the model has [512, 64]; HF_CKPT"),
    ({OUTPUT_LAYER: (512, 64)}, f"extra: {OUTPUT_LAYER} [512, 64] (the checkpoint's embeddings are untied, the"),
]


@pytest.mark.parametrize("change,message", MISFITS)
def test_what_does_not_fit_is_named_in_one_line_and_nothing_is_written(plain, tmp_path, change, message, capsys):
    model, tensors = plain
    changed = tensors | {name: torch.zeros(shape) for name, shape in change.items() if shape}
    broken = {name: tensor for name, tensor in changed.items() if change.get(name, True)}
    source = write_checkpoint(tmp_path / "iter_0000001", broken)
    assert main(["--input", str(source), "--hf", str(model), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert "--hf) must be the folder of the model that was trained" in error
    assert [p.name for p in tmp_path.iterdir()] == ["iter_0000001"]


def test_a_tied_checkpoint_of_an_untied_model_is_refused(plain, tmp_path):
    model, tensors = plain
    untied = shutil.copytree(model, tmp_path / "untied")
    config = json.loads((untied / "config.json").read_text())
    (untied / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    source = write_checkpoint(tmp_path / "iter_0000001", tensors)
    with pytest.raises(ConvertError, match=r"missing: output_layer\.weight \[512, 64\] \(.* embeddings are tied"):
        convert(source, untied, tmp_path / "out")


def test_a_padded_output_layer_is_cut_too(tmp_path):
    model = make_tiny_model(tmp_path / "model", vocab=500)
    folder = write_release(model, tmp_path / "run")
    tensors = ModelTensors(folder)
    named = {name: tensors.read(name) for name in tensors.shapes}
    padded = {name: torch.cat([named[name], torch.ones(12, 64)]) for name in (EMBEDDING, OUTPUT_LAYER)}
    convert(write_checkpoint(tmp_path / "iter_0000001", named | padded), model, tmp_path / "out")
    assert same_weights(tmp_path / "out", load_file(model / "model.safetensors"))


def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are(plain, tmp_path, capsys):
    model, tensors = plain
    for iteration in (20, 30):
        write_checkpoint(tmp_path / f"iter_00000{iteration}", tensors)
    missing = str(tmp_path / "iter_0000040")
    assert main(["--input", missing, "--hf", str(model), "--output", str(tmp_path / "out")]) == 1
    there = "iter_0000020, iter_0000030"
    assert capsys.readouterr().err == f"error: {missing}: no torch_dist checkpoint; there are {there}\n"


@pytest.mark.parametrize("file", [".metadata", "__0_0.distcp"])
@pytest.mark.parametrize("size", [0, 1000])
def test_a_file_cut_short_is_one_line(plain, tmp_path, file, size, capsys):
    model, tensors = plain
    source = write_checkpoint(tmp_path / "iter_0000001", tensors)
    (source / file).write_bytes((source / file).read_bytes()[:size])
    assert main(["--input", str(source), "--hf", str(model), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {source}: the checkpoint is damaged: ") and error.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["iter_0000001"]


def test_an_existing_output_is_replaced_only_when_forced(run, tmp_path):
    model, save_path, weights = run
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    with pytest.raises(OutputRefused, match="exists already; set FORCE=1"):
        convert(save_path, model, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["precious"]
    convert(save_path, model, tmp_path / "out", force=True)
    assert same_weights(tmp_path / "out", weights) and not (tmp_path / "out" / "precious").exists()


def test_an_interrupted_conversion_leaves_the_old_output(run, tmp_path, monkeypatch):
    model, save_path, _ = run
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mem_agent.checkpoints.hf_folder.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        convert(save_path, model, tmp_path / "out", force=True)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["out", "out/precious"]


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_replaced_is_put_back_when_the_new_folder_cannot_take_its_place(run, tmp_path, monkeypatch, killed):
    model, save_path, _ = run
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    rename = Path.rename

    def fails(self, target):
        if self.name == ".out.writing":
            raise KeyboardInterrupt
        return rename(self, target)

    if killed:
        (tmp_path / "out").rename(tmp_path / ".out.replaced")
        with pytest.raises(OutputRefused, match="exists already"), complete_folder(tmp_path / "out", force=False):
            pass
    else:
        monkeypatch.setattr(Path, "rename", fails)
        with pytest.raises(KeyboardInterrupt):
            convert(save_path, model, tmp_path / "out", force=True)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["out", "out/precious"]


def during_the_weights(monkeypatch, happens):
    """``happens`` once, right before the first file of weights is written."""
    def first(*args, **kwargs):
        monkeypatch.setattr("mem_agent.checkpoints.hf_folder.save_file", save_file)
        happens()
        save_file(*args, **kwargs)

    monkeypatch.setattr("mem_agent.checkpoints.hf_folder.save_file", first)


@pytest.mark.parametrize("force", [False, True])
def test_a_second_conversion_into_a_folder_is_refused_and_harms_nothing(run, tmp_path, monkeypatch, force):
    model, save_path, weights = run

    def second():
        with pytest.raises(OutputRefused, match=f"{tmp_path}: another run is writing out; wait for it to"):
            convert(save_path, model, tmp_path / "out", force=force)

    during_the_weights(monkeypatch, second)
    convert(save_path, model, tmp_path / "out", force=force)
    assert same_weights(tmp_path / "out", weights) and [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_appears_under_the_name_while_a_conversion_writes_is_not_replaced(run, tmp_path, monkeypatch):
    model, save_path, _ = run
    during_the_weights(monkeypatch, lambda: (tmp_path / "out").mkdir())
    with pytest.raises(OutputRefused, match="exists already"):
        convert(save_path, model, tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())


def written_anew(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("new"))
    shutil.rmtree(folder)
    folder.with_name("new").rename(folder)


def written_in_place(folder: Path) -> None:
    file = next(folder.glob("*.distcp"))
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("happens", [written_anew, written_in_place, shutil.rmtree])
def test_a_checkpoint_that_changes_while_it_is_converted_makes_no_model(run, tmp_path, monkeypatch, happens):
    """A run that was set back writes it again, half of the old and half of the new weights would be converted; one
    that goes on removes it, which is no damage."""
    model, save_path, _ = run
    shutil.copytree(save_path, tmp_path / "run")
    source = tmp_path / "run" / "iter_0000003"
    during_the_weights(monkeypatch, lambda: happens(source))
    with pytest.raises(FolderReplaced, match=f"{source}: was written anew or removed while it was read; run again$"):
        convert(source, model, tmp_path / "out", shard_size=10_000)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


class FromAnotherMegatron:
    """Pickled into the metadata by reference to a module that the reader does not have."""

    __module__ = "megatron.of_the_future"


def test_metadata_with_unknown_classes_is_read(plain, tmp_path, monkeypatch):
    model, tensors = plain
    source = write_checkpoint(tmp_path / "iter_0000001", tensors)
    metadata = pickle.loads((source / ".metadata").read_bytes())
    module: Any = type(sys)("megatron.of_the_future")
    module.FromAnotherMegatron = FromAnotherMegatron
    monkeypatch.setitem(sys.modules, "megatron.of_the_future", module)
    metadata.planner_data = FromAnotherMegatron()
    (source / ".metadata").write_bytes(pickle.dumps(metadata))
    monkeypatch.delitem(sys.modules, "megatron.of_the_future")
    with pytest.raises(ModuleNotFoundError):
        pickle.loads((source / ".metadata").read_bytes())
    convert(source, model, tmp_path / "out")
    assert same_weights(tmp_path / "out", load_file(model / "model.safetensors"))


def test_the_names_looked_for_are_those_in_a_checkpoint(plain):
    model, tensors = plain
    assert {n: tuple(t.shape) for n, t in tensors.items()} == expected_tensors(build_bridge(model))


def test_the_command_line_reports_in_one_line(plain, tmp_path, capsys):
    model, tensors = plain
    source = write_checkpoint(tmp_path / "iter_0000001", tensors)
    command = [sys.executable, "-W", "ignore", "-m", "mem_agent.checkpoints.convert", "--hf", str(model)]
    arguments = ["--input", str(source), "--output", str(tmp_path / "out"), "--shard-size", "1MB"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    without = f"without settings of an agent: {tmp_path} has no mem_agent.yaml\n"
    assert (done.returncode, done.stdout) == (0, f"{source} -> {tmp_path / 'out'}\n{without}")
    assert main(["--hf", str(model), *arguments]) == 1
    output = tmp_path / "out"
    assert capsys.readouterr().err == f"error: {output}: exists already; set FORCE=1 (--force) to replace it\n"
