"""The average of several model folders is their float32 mean, of one model, complete or not there at all."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.checkpoints.average import average, main
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.tests.helpers.tiny_model import make_tiny_model

Weights = dict[str, torch.Tensor]


def write(folder: Path, weights: Weights) -> None:
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit(folder: Path, **change: object) -> None:
    (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | change))


def read(folder: Path) -> Weights:
    tensors = HfTensors(folder)
    return {name: tensors.read(name) for name in tensors.shapes}


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> list[Path]:
    """Folders of one model in bfloat16 that differ in their weights and in who wrote them."""
    folders = [make_tiny_model(tmp_path_factory.mktemp("iter"), seed) for seed in range(3)]
    for number, folder in enumerate(folders):
        write(folder, {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()})
        edit(folder, dtype="bfloat16", transformers_version=f"5.{number}")
    return folders


def test_the_mean_is_taken_in_float32_and_cast_back(three, tmp_path):
    average(three, tmp_path / "out")
    inputs, found = [read(folder) for folder in three], read(tmp_path / "out")
    assert set(found) == set(inputs[0])
    for name, tensor in found.items():
        mean = (inputs[0][name].float() + inputs[1][name].float() + inputs[2][name].float()) / 3
        assert torch.equal(tensor, mean.bfloat16()), name
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(tmp_path / "out").encode("Anna") != []


NORM = torch.zeros(64, dtype=torch.bfloat16)


@pytest.mark.parametrize("change,message", [
    (lambda f: write(f, read(f) | {"model.norm.weight": NORM.repeat(2)}), "model.norm.weight"),
    (lambda f: write(f, read(f) | {"model.norm.weight": NORM.float()}), "model.norm.weight"),
    (lambda f: write(f, read(f) | {"model.norm.weight": NORM * float("nan")}), "model.norm.weight"),
    (lambda f: edit(f, rms_norm_eps=0.5), "rms_norm_eps"),
    (lambda f: (f / "config.json").write_text("{"), "config.json"),
])
def test_another_or_a_diverged_model_is_one_line_and_nothing_is_written(three, tmp_path, change, message, capsys):
    change(odd := shutil.copytree(three[2], tmp_path / "odd"))
    assert main(["--inputs", *map(str, three[:2]), str(odd), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]
