"""torch_dist to Hugging Face, back, and the mean of several: bit for bit, and complete or not there at all."""

import json
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.checkpoints import average, checkpoint, convert, hf_folder
from mem_agent.checkpoints.bridge import build_bridge, expected_tensors
from mem_agent.checkpoints.checkpoint import ModelTensors
from mem_agent.checkpoints.folders import TRACKER, CheckpointError
from mem_agent.checkpoints.hf_folder import HfTensors, UnsupportedModel
from mem_agent.checkpoints.hf_model import load_vocabulary, refuse_foreign_code
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.system.errors import MemAgentError
from mem_agent.system.files import DiskFull
from mem_agent.tests.helpers.attack import Attack
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer

Weights = dict[str, torch.Tensor]


def read(folder: Path) -> Weights:
    tensors = HfTensors(folder)
    return {name: tensors.read(name) for name in tensors.shapes}


def same(folder: Path, wanted: Weights) -> bool:
    found = read(folder)
    equal = [found[n].dtype == wanted[n].dtype and torch.equal(found[n], wanted[n]) for n in wanted if n in found]
    return set(found) == set(wanted) and all(equal)


def write(folder: Path, weights: Weights) -> None:
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit(folder: Path, file: str = "config.json", **change: object) -> None:
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | change))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, Path, Weights]:
    """(model folder, run folder with two checkpoints of it, its weights)."""
    folder = tmp_path_factory.mktemp("run")
    model, first = make_tiny_model(folder / "model", tied=True), write_release(folder / "model", folder / "run")
    (folder / "run" / TRACKER).write_text("3")
    shutil.copytree(first, first.with_name("iter_0000001"))
    first.rename(first.with_name("iter_0000003"))
    return model, folder / "run", read(model)


# --- to Hugging Face ------------------------------------------------------------------------------------------------


def test_a_trained_checkpoint_converts_bit_for_bit(tmp_path):
    model = make_tiny_model(tmp_path / "model", architecture="qwen2", heads=4, kv_heads=2)
    trainer = Trainer(make_config(model))
    train(trainer, make_rows(), 1)
    checkpoint.save(tmp_path / "run", 3, trainer, {})
    assert convert.convert(tmp_path / "run", model, tmp_path / "out") == tmp_path / "run" / "iter_0000003"
    assert same(tmp_path / "out", trainer.export_hf())
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(loaded[1].values()) and AutoTokenizer.from_pretrained(tmp_path / "out").encode("Anna") != []


@pytest.mark.parametrize("options,written", [
    ([], ["iter_0000003"]), (["--iteration", "1"], ["iter_0000001"]), (["--all"], ["iter_0000001", "iter_0000003"]),
    (["--average", "1", "3"], ["average_1_3", "iter_0000001", "iter_0000003"]),
])
def test_one_checkpoint_several_or_their_mean(run, tmp_path, capsys, monkeypatch, options, written):
    model, save_path, weights = run
    monkeypatch.setattr(hf_folder, "SHARD_SIZE", 50_000)  # several files with an index
    arguments = ["--input", str(shutil.copytree(save_path, tmp_path / "run")), "--hf", str(model), *options]
    assert convert.main(arguments) == 0
    models = sorted((tmp_path / "run" / "hf").iterdir())
    assert [folder.name for folder in models] == written and all(same(folder, weights) for folder in models)
    index = json.loads((models[0] / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(weights) and len(set(index["weight_map"].values())) > 3
    assert convert.main([*arguments[:4], "--iteration", "4"]) == 1 and "iter_0000003" in capsys.readouterr().err


@pytest.mark.parametrize("other,name", [
    ({"layers": 3}, "decoder.layers.2"), ({"vocab": 600}, "embedding"), ({"tied": False}, "output_layer"),
])
def test_a_checkpoint_of_another_model_is_one_line_and_nothing_is_written(run, tmp_path, capsys, other, name):
    model = make_tiny_model(tmp_path / "other", **{"tied": True} | other)
    capsys.readouterr()
    assert convert.main(["--input", str(run[1]), "--hf", str(model), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert name in error and "HF_CKPT" in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_an_existing_output_is_replaced_only_when_forced_and_by_a_whole_one(run, tmp_path, monkeypatch):
    model, save_path, weights = run
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    with pytest.raises(CheckpointError, match="FORCE=1"):
        convert.convert(save_path, model, tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(DiskFull, match="out"):
        patch.setattr(hf_folder, "save_file", Mock(side_effect=OSError(28, "No space left on device")))
        convert.convert(save_path, model, tmp_path / "out", force=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "precious"]
    convert.convert(save_path, model, tmp_path / "out", force=True)
    assert same(tmp_path / "out", weights) and not (tmp_path / "out" / "precious").exists()
    with pytest.raises(CheckpointError, match="/out"):
        convert.convert(save_path, tmp_path / "out", tmp_path / "out", force=True)


class OfMegatron:
    """Pickled into the metadata by reference to a module that the reader does not have."""

    __module__ = "megatron.of_the_future"


def test_of_the_metadata_megatrons_own_classes_are_skipped_and_code_is_not_run(run, tmp_path, monkeypatch):
    source = shutil.copytree(run[1] / "iter_0000003", tmp_path / "iter_0000003")
    metadata = pickle.loads((source / ".metadata").read_bytes())
    monkeypatch.setitem(sys.modules, OfMegatron.__module__, SimpleNamespace(OfMegatron=OfMegatron))
    (source / ".metadata").write_bytes(pickle.dumps(replace(metadata, planner_data=OfMegatron())))
    monkeypatch.delitem(sys.modules, OfMegatron.__module__)
    convert.convert(source, run[0], tmp_path / "out")
    (source / ".metadata").write_bytes(pickle.dumps(replace(metadata, planner_data=Attack(tmp_path / "victim"))))
    with pytest.raises(CheckpointError, match=r"\.metadata"):
        convert.convert(source, run[0], tmp_path / "other")
    assert not (tmp_path / "victim").exists()


# --- the model ------------------------------------------------------------------------------------------------------


def test_python_that_comes_with_a_model_runs_only_where_it_is_trusted(run, tmp_path):
    model = shutil.copytree(run[0], tmp_path / "mine")
    (model / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    edit(model, auto_map={"AutoConfig": "mine.Mine"}, model_type="mine")
    edit(model, "tokenizer_config.json", auto_map={"AutoTokenizer": "mine.Mine"}, tokenizer_class="Mine")
    refuse_foreign_code(model, True)
    for reader in (load_vocabulary, build_bridge, lambda folder: refuse_foreign_code(folder, False)):
        with pytest.raises(MemAgentError, match=r"TRUST_REMOTE_CODE=1|not supported"):
            reader(model)
    assert not (tmp_path / "ran").exists()


# --- to torch_dist --------------------------------------------------------------------------------------------------


def cast_and_split(folder: Path, dtype: torch.dtype) -> Weights:
    """The weights in two files and an index, with a file beside them that does not belong."""
    tensors = {name: tensor.to(dtype) for name, tensor in read(folder).items()}
    names = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in set(names.values()):
        save_file({name: tensors[name] for name in tensors if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    edit(folder, dtype=str(dtype).removeprefix("torch."))
    return tensors


@pytest.mark.parametrize("architecture,tied,dtype", [
    ("qwen2", False, torch.float32), ("qwen3", True, torch.bfloat16), ("llama", False, torch.float16),
])
def test_every_architecture_comes_back_bit_for_bit(tmp_path, architecture, tied, dtype):
    model = make_tiny_model(tmp_path / "hf", architecture=architecture, tied=tied, vocab=501, heads=4, kv_heads=2)
    wanted = cast_and_split(model, dtype)
    folder = write_release(model, tmp_path / "out")
    assert ModelTensors(folder).shapes == expected_tensors(build_bridge(model))
    convert.convert(tmp_path / "out", model, tmp_path / "back")
    assert same(tmp_path / "back", wanted)


def test_the_layout_is_that_of_the_hosts_own_tool(tmp_path):
    folder = write_release(make_tiny_model(tmp_path / "hf", architecture="qwen2"), tmp_path / "out")
    assert (tmp_path / "out" / TRACKER).read_text() == folder.name == "release"
    assert {path.name for path in folder.iterdir()} == {".metadata", "__0_0.distcp", "common.pt", "metadata.json"}
    assert json.loads((folder / "metadata.json").read_text())["sharded_backend"] == "torch_dist"
    common = torch.load(folder / "common.pt", weights_only=False)
    assert common["checkpoint_version"] == 3.0 and common["content_metadata"]["singleton_local_shards"] is False
    assert (common["args"].num_layers, common["args"].vocab_size) == (2, 512)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    sizes = {key: tuple(getattr(entry, "size", ())) for key, entry in metadata.state_dict_metadata.items()}
    assert sizes["decoder.layers.self_attention.linear_qkv.weight"] == (2, 128, 64)
    assert sizes["decoder.layers.mlp.linear_fc1.layer_norm_weight"] == (2, 64)
    # What a Transformer Engine model asks for: of two layers seven modules each, and the last norm's.
    states = sorted(index.fqn for index in metadata.storage_data if "_extra_state" in index.fqn)
    assert len(states) == 15 and states[0] == "decoder.final_layernorm._extra_state/shard_0_1"
    assert states[1] == "decoder.layers.mlp.linear_fc1._extra_state/shard_0_2"


EMBEDDING = "model.embed_tokens.weight"


def test_a_copy_of_a_tied_output_layer_is_left_out_and_another_one_refused(run, tmp_path):
    model, weights = shutil.copytree(run[0], tmp_path / "hf"), run[2]
    write(model, weights | {"lm_head.weight": weights[EMBEDDING].clone()})
    write_release(model, tmp_path / "out")
    convert.convert(tmp_path / "out", model, tmp_path / "back")
    assert same(tmp_path / "back", weights)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    average.average([model, tmp_path / "back"], tmp_path / "mean")
    assert same(tmp_path / "mean", weights)
    write(model, weights | {"lm_head.weight": weights[EMBEDDING] + 1})
    with pytest.raises(UnsupportedModel, match=r"/hf: lm_head\.weight") as error:
        write_release(model, tmp_path / "other")
    assert "\n" not in str(error.value) and not (tmp_path / "other").exists()


# --- the mean of several --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> list[Path]:
    """Folders of one model in bfloat16 that differ in their weights and in who wrote them."""
    folders = [make_tiny_model(tmp_path_factory.mktemp("iter"), seed) for seed in range(3)]
    for number, folder in enumerate(folders):
        write(folder, {name: tensor.bfloat16() for name, tensor in read(folder).items()})
        edit(folder, dtype="bfloat16", transformers_version=f"5.{number}")
    return folders


def test_the_mean_is_taken_in_float32_and_cast_back(three, tmp_path):
    average.average(three, tmp_path / "out")
    first, second, third = map(read, three)
    means = {name: (first[name].float() + second[name].float() + third[name].float()) / 3 for name in first}
    assert same(tmp_path / "out", {name: mean.bfloat16() for name, mean in means.items()})


NORM = torch.zeros(64, dtype=torch.bfloat16)


@pytest.mark.parametrize("change,message", [
    (lambda f: write(f, read(f) | {"model.norm.weight": NORM.float()}), "model.norm.weight"),
    (lambda f: write(f, read(f) | {"model.norm.weight": NORM * float("nan")}), "model.norm.weight"),
])
def test_of_another_or_a_diverged_model_there_is_no_mean(three, tmp_path, change, message, capsys):
    change(odd := shutil.copytree(three[2], tmp_path / "odd"))
    assert average.main(["--inputs", *map(str, three[:2]), str(odd), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]
