"""Checkpoints become Hugging Face folders bit for bit, or nothing at all."""

import json
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemWriter, save_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.checkpoints import checkpoint, hf_folder
from mem_agent.checkpoints.bridge import build_bridge
from mem_agent.checkpoints.convert import convert, main
from mem_agent.checkpoints.folders import TRACKER, CheckpointError
from mem_agent.checkpoints.hf_folder import UnsupportedModel, check_weights
from mem_agent.checkpoints.hf_model import load_vocabulary, refuse_foreign_code
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.config import ConfigError
from mem_agent.system.files import DiskFull
from mem_agent.tests.helpers.attack import Attack
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer

Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, Path, Weights]:
    """(model folder, run folder with two checkpoints of it, its weights)."""
    folder = tmp_path_factory.mktemp("run")
    model, release = make_tiny_model(folder / "model", tied=True), write_release(folder / "model", folder / "run")
    (folder / "run" / TRACKER).write_text("3")
    shutil.copytree(release, release.with_name("iter_0000001"))
    release.rename(release.with_name("iter_0000003"))
    return model, folder / "run", load_file(model / "model.safetensors")


@pytest.fixture(scope="module")
def stored(run) -> Weights:
    """The weights under their names in a checkpoint, one per layer."""
    tensors = ModelTensors(run[1] / "iter_0000003")
    return {name: tensors.read(name) for name in tensors.shapes}


def write_checkpoint(folder: Path, tensors: Weights) -> Path:
    folder.mkdir()
    save_state_dict(tensors, FileSystemWriter(folder), no_dist=True)
    return folder


def same_weights(folder: Path, weights: Weights) -> bool:
    found = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
    return set(found) == set(weights) and all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize("architecture,tied", [("qwen3", True), ("qwen2", False), ("llama", True)])
def test_a_trained_checkpoint_converts_bit_for_bit(tmp_path, architecture, tied):
    model = make_tiny_model(tmp_path / "model", architecture=architecture, tied=tied, heads=4, kv_heads=2)
    trainer = Trainer(make_config(model))
    train(trainer, make_rows(), 1)
    checkpoint.save(tmp_path / "run", 3, trainer, {})
    assert convert(tmp_path / "run", model, tmp_path / "out") == tmp_path / "run" / "iter_0000003"
    assert same_weights(tmp_path / "out", trainer.export_hf())
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(loaded[1].values())
    tokenizer, chat = AutoTokenizer.from_pretrained(tmp_path / "out"), [{"role": "user", "content": "Where is Anna?"}]
    assert tokenizer.apply_chat_template(chat) == AutoTokenizer.from_pretrained(model).apply_chat_template(chat)


def test_shards_keep_to_their_size_and_are_indexed(run, tmp_path, monkeypatch):
    model, save_path, weights = run
    monkeypatch.setattr(hf_folder, "SHARD_SIZE", 50_000)
    convert(save_path, model, tmp_path / "out")
    assert same_weights(tmp_path / "out", weights)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(weights)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in weights.values())
    for file in set(index["weight_map"].values()):
        tensors = load_file(tmp_path / "out" / file)
        assert sum(t.nbytes for t in tensors.values()) <= 50_000 or len(tensors) <= 3, file  # q, k, v; gate, up


@pytest.mark.parametrize("options,written", [
    ([], ["iter_0000003"]), (["--iteration", "1"], ["iter_0000001"]),
    (["--iteration", "iter_0000001"], ["iter_0000001"]), (["--all"], ["iter_0000001", "iter_0000003"]),
    (["--average", "1", "3"], ["average_1_3", "iter_0000001", "iter_0000003"]),
])
def test_one_checkpoint_several_or_their_mean(run, tmp_path, capsys, options, written):
    model, save_path, weights = run
    arguments = ["--input", str(shutil.copytree(save_path, tmp_path / "run")), "--hf", str(model), *options]
    assert main(arguments) == 0
    models = sorted((tmp_path / "run" / "hf").iterdir())
    assert [folder.name for folder in models] == written and all(same_weights(folder, weights) for folder in models)
    assert main([*arguments[:4], "--iteration", "4"]) == 1 and "iter_0000003" in capsys.readouterr().err
    assert main([*arguments[:4], "--all", "--output", str(tmp_path / "out")]) == 1


@pytest.mark.parametrize("prefix,per_layer", [("", True), ("module.", False), ("model.module.", True)])
def test_all_namings_and_paddings_of_a_checkpoint_are_read(run, stored, tmp_path, prefix, per_layer):
    embedding = stored["embedding.word_embeddings.weight"]
    tensors = stored | {"embedding.word_embeddings.weight": torch.cat([embedding, torch.ones(128, 64)])}
    if not per_layer:
        parameters = {name.split(".", 3)[3] for name in tensors if name.startswith("decoder.layers.")}
        layers = {p: torch.stack([tensors[f"decoder.layers.{i}.{p}"] for i in range(2)]) for p in parameters}
        tensors = {n: t for n, t in tensors.items() if not n.startswith("decoder.layers.")}
        tensors |= {f"decoder.layers.{parameter}": tensor for parameter, tensor in layers.items()}
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    named |= {"optimizer.state.exp_avg.decoder.final_layernorm.weight": torch.zeros(64), "rng_state": torch.zeros(3)}
    convert(write_checkpoint(tmp_path / "iter_0000001", named), run[0], tmp_path / "out")
    assert same_weights(tmp_path / "out", run[2])


LAYER, OUTPUT_LAYER = "decoder.layers.1.mlp.linear_fc2.weight", "output_layer.weight"


@pytest.mark.parametrize("name,shape", [(LAYER, None), (LAYER, (64, 127)), (OUTPUT_LAYER, (512, 64))])
def test_what_does_not_fit_is_named_in_one_line_and_nothing_is_written(run, stored, tmp_path, name, shape, capsys):
    changed = {key: tensor for key, tensor in stored.items() if key != name}
    changed |= {name: torch.zeros(shape)} if shape else {}
    source = write_checkpoint(tmp_path / "iter_0000001", changed)
    assert main(["--input", str(source), "--hf", str(run[0]), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert name in error and "HF_CKPT" in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["iter_0000001"]


def test_an_existing_output_is_replaced_only_when_forced_and_by_a_whole_one(run, tmp_path, monkeypatch):
    model, save_path, weights = run
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("")
    with pytest.raises(CheckpointError, match="FORCE=1"):
        convert(save_path, model, tmp_path / "out")

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DiskFull, match=r"out.*No space left"):
        patch.setattr("mem_agent.checkpoints.hf_folder.save_file", full)
        convert(save_path, model, tmp_path / "out", force=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "precious"]
    convert(save_path, model, tmp_path / "out", force=True)
    assert same_weights(tmp_path / "out", weights) and [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "precious").exists()
    with pytest.raises(CheckpointError, match=r"/out: .*/out;"):
        convert(save_path, tmp_path / "out", tmp_path / "out", force=True)


# --- .metadata, which is a pickle -----------------------------------------------------------------------------------


class FromAnotherMegatron:
    """Pickled into the metadata by reference to a module that the reader does not have."""

    __module__ = "megatron.of_the_future"


def with_planner_data(run: Path, folder: Path, value: object) -> Path:
    source = shutil.copytree(run / "iter_0000003", folder / "iter_0000003")
    metadata = pickle.loads((source / ".metadata").read_bytes())
    metadata.planner_data = value
    (source / ".metadata").write_bytes(pickle.dumps(metadata))
    return source


def test_unknown_classes_of_megatron_are_read_as_nothing(run, tmp_path, monkeypatch):
    model, save_path, weights = run
    module: Any = type(sys)("megatron.of_the_future")
    module.FromAnotherMegatron = FromAnotherMegatron
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "megatron.of_the_future", module)
        source = with_planner_data(save_path, tmp_path, FromAnotherMegatron())
    convert(source, model, tmp_path / "out")
    assert same_weights(tmp_path / "out", weights)


def test_nothing_runs(run, tmp_path):
    source = with_planner_data(run[1], tmp_path, Attack(tmp_path / "victim"))
    with pytest.raises(CheckpointError, match=r"\.metadata"):
        convert(source, run[0], tmp_path / "out")
    assert not (tmp_path / "victim").exists()


# --- the model ------------------------------------------------------------------------------------------------------


def test_python_that_comes_with_a_model_runs_only_where_it_is_trusted(run, tmp_path):
    model = shutil.copytree(run[0], tmp_path / "mine")
    (model / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    for name, kind in (("config.json", "AutoConfig"), ("tokenizer_config.json", "AutoTokenizer")):
        settings = json.loads((model / name).read_text()) | {"auto_map": {kind: "mine.Mine"}, "model_type": "mine"}
        (model / name).write_text(json.dumps(settings | {"tokenizer_class": "Mine"}))
    with pytest.raises(ConfigError, match=r"config\.json .*TRUST_REMOTE_CODE=1"):
        refuse_foreign_code(model, False)
    refuse_foreign_code(model, True)
    with pytest.raises(ConfigError, match="TRUST_REMOTE_CODE=1"):
        load_vocabulary(model)
    with pytest.raises(UnsupportedModel):
        build_bridge(model)
    assert not (tmp_path / "ran").exists()


FULL = ["full_attention"] * 3


@pytest.mark.parametrize("change,message", [
    ({"num_hidden_layers": 1, "layer_types": FULL[:1]}, r"model\.layers\.1"),
    ({"num_hidden_layers": 3, "layer_types": FULL}, r"model\.layers\.2"),
    ({"intermediate_size": 96}, "mlp"),
])
def test_weights_that_are_not_those_of_the_config_are_named(run, tmp_path, change, message):
    model = shutil.copytree(run[0], tmp_path / "model")
    check_weights(build_bridge(model).hf_config, model)
    (model / "config.json").write_text(json.dumps(json.loads((model / "config.json").read_text()) | change))
    with pytest.raises(UnsupportedModel, match=message):
        check_weights(build_bridge(model).hf_config, model)
