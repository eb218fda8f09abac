"""The average of several model folders is their float32 mean, of one model, complete or not there at all."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.checkpoints import hf_folder
from mem_agent.checkpoints.average import average, main
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.tests.helpers.tiny_model import make_tiny_model

Weights = dict[str, torch.Tensor]


def write(folder: Path, weights: Weights) -> None:
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit(folder: Path, file: str, **change: object) -> None:
    settings = json.loads((folder / file).read_text()) | change
    (folder / file).write_text(json.dumps(settings))


@pytest.fixture
def three(tmp_path) -> list[Path]:
    """Folders of one model in bfloat16 that differ in their weights and in who wrote them."""
    folders = []
    for seed in range(3):
        folder = make_tiny_model(tmp_path / f"iter_{seed}", seed)
        write(folder, {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()})
        edit(folder, "config.json", dtype="bfloat16", transformers_version=f"5.{seed}")
        folders.append(folder)
    return folders


def read(folder: Path) -> Weights:
    tensors = HfTensors(folder)
    return {name: tensors.read(name) for name in tensors.shapes}


def test_a_model_that_diverged_is_not_averaged_in(three, tmp_path):
    weights = load_file(three[1] / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] = float("nan")
    write(three[1], weights)
    with pytest.raises(CheckpointError, match="is not finite in one of the inputs"):
        average(three, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_mean_is_taken_in_float32_and_cast_back(three, tmp_path):
    average(three, tmp_path / "out")
    inputs, found = [read(folder) for folder in three], read(tmp_path / "out")
    assert set(found) == set(inputs[0])
    for name, tensor in found.items():
        mean = (inputs[0][name].float() + inputs[1][name].float() + inputs[2][name].float()) / 3
        assert torch.equal(tensor, mean.bfloat16()), name
    files = {file.name for file in three[0].iterdir()} - {"model.safetensors"}
    assert files <= {file.name for file in (tmp_path / "out").iterdir()}
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(tmp_path / "out").encode("Anna") != []


def test_averaging_equals_changes_nothing_and_the_sharding_may_differ(three, tmp_path, monkeypatch):
    average([three[0], shutil.copytree(three[0], tmp_path / "same")], tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(hf_folder, "SHARD_SIZE", 50_000)
        average([tmp_path / "one", three[0]], tmp_path / "sharded")
    average([three[0], tmp_path / "sharded"], tmp_path / "out")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").exists()
    first, last = read(three[0]), read(tmp_path / "out")
    assert all(torch.equal(tensor, last[name]) for name, tensor in first.items())


def other_shape(folder: Path) -> None:
    write(folder, read(folder) | {"model.norm.weight": torch.zeros(65, dtype=torch.bfloat16)})


@pytest.mark.parametrize("change,message", [
    (other_shape, "model.norm.weight"),
    (lambda f: edit(f, "config.json", rms_norm_eps=0.5), "rms_norm_eps"),
    (lambda f: (f / "config.json").write_text("{"), "config.json"),
])
def test_the_first_difference_is_one_line_and_nothing_is_written(three, tmp_path, change, message, capsys):
    change(three[2])
    assert main(["--inputs", *map(str, three), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error and str(three[2]) in error and error.count("\n") == 1, error
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
