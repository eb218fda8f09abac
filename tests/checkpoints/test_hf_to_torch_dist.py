"""A release checkpoint holds the model bit for bit, under the keys and with the entries that the hosts ask for."""

import io
import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mem_agent.checkpoints import hf_model
from mem_agent.checkpoints import hf_to_torch_dist as release
from mem_agent.checkpoints.bridge import build_bridge, expected_tensors
from mem_agent.checkpoints.convert import convert
from mem_agent.checkpoints.folders import TRACKER, CheckpointError
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_to_torch_dist import main, write_release
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.tests.helpers.tiny_model import make_tiny_model


def read(folder: Path) -> dict[str, torch.Tensor]:
    tensors = HfTensors(folder)
    return {name: tensors.read(name) for name in tensors.shapes}


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    equal = [found[n].dtype == wanted[n].dtype and torch.equal(found[n], wanted[n]) for n in wanted if n in found]
    return set(found) == set(wanted) and all(equal)


def cast_and_split(folder: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The weights in two files and an index, with a file beside them that does not belong."""
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    names = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in set(names.values()):
        save_file({name: tensors[name] for name in tensors if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    config = json.loads((folder / "config.json").read_text()) | {"dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), architecture="qwen2")


@pytest.mark.parametrize("architecture,tied,dtype", [
    ("qwen2", True, torch.bfloat16), ("qwen2", False, torch.float32), ("qwen3", True, torch.float32),
    ("qwen3", False, torch.bfloat16), ("llama", True, torch.bfloat16), ("llama", False, torch.float16),
])
def test_every_architecture_comes_back_bit_for_bit(tmp_path, architecture, tied, dtype):
    model = make_tiny_model(tmp_path / "hf", architecture=architecture, tied=tied, vocab=501, heads=4, kv_heads=2)
    wanted = cast_and_split(model, dtype)
    folder = write_release(model, tmp_path / "out")
    assert ModelTensors(folder).shapes == expected_tensors(build_bridge(model))
    convert(tmp_path / "out", model, tmp_path / "back")
    assert same(read(tmp_path / "back"), wanted)


def test_the_number_format_can_be_chosen_and_must_be_when_there_are_several(tmp_path):
    model = make_tiny_model(tmp_path / "hf")
    folder = write_release(model, tmp_path / "out", dtype="bfloat16")
    convert(folder, model, tmp_path / "back", dtype="bfloat16")
    assert same(read(tmp_path / "back"), {name: tensor.bfloat16() for name, tensor in read(model).items()})
    assert json.loads((tmp_path / "back" / "config.json").read_text())["dtype"] == "bfloat16"
    mixed = load_file(model / "model.safetensors")
    save_file(mixed | {"model.norm.weight": mixed["model.norm.weight"].half()}, model / "model.safetensors")
    with pytest.raises(CheckpointError, match="--dtype"):
        write_release(model, tmp_path / "mixed")
    write_release(model, tmp_path / "mixed", dtype="float32")


def test_the_layout_is_that_of_the_hosts_own_tool(model, tmp_path):
    folder = write_release(model, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TRACKER, "release"]
    assert (tmp_path / "out" / TRACKER).read_text() == "release"
    assert {path.name for path in folder.iterdir()} == {".metadata", "__0_0.distcp", "common.pt", "metadata.json"}
    assert json.loads((folder / "metadata.json").read_text())["sharded_backend"] == "torch_dist"
    common = torch.load(folder / "common.pt", weights_only=False)
    assert common["checkpoint_version"] == 3.0 and common["content_metadata"]["singleton_local_shards"] is False
    assert (common["args"].num_layers, common["args"].vocab_size) == (2, 512)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    entries = metadata.state_dict_metadata.items()
    assert {key: tuple(entry.size) for key, entry in entries if "_extra_state" not in key} == {
        "embedding.word_embeddings.weight": (512, 64),
        "output_layer.weight": (512, 64),
        "decoder.final_layernorm.weight": (64,),
        "decoder.layers.self_attention.linear_qkv.weight": (2, 128, 64),
        "decoder.layers.self_attention.linear_qkv.bias": (2, 128),
        "decoder.layers.self_attention.linear_qkv.layer_norm_weight": (2, 64),
        "decoder.layers.self_attention.linear_proj.weight": (2, 64, 64),
        "decoder.layers.mlp.linear_fc1.weight": (2, 256, 64),
        "decoder.layers.mlp.linear_fc1.layer_norm_weight": (2, 64),
        "decoder.layers.mlp.linear_fc2.weight": (2, 64, 128),
    }
    # What a Transformer Engine model asks for is there, and empty.
    states = {index.fqn: info for index, info in metadata.storage_data.items() if "_extra_state" in index.fqn}
    layer = ("linear_qkv", "linear_proj", "core_attention", "q_layernorm", "k_layernorm", "linear_fc1", "linear_fc2")
    asked = [f"{'mlp' if 'fc' in module else 'self_attention'}.{module}" for module in layer]
    names = {f"decoder.layers.{module}._extra_state/shard_{i}_2" for module in asked for i in range(2)}
    assert set(states) == names | {"decoder.final_layernorm._extra_state/shard_0_1"}
    data = (folder / "__0_0.distcp").read_bytes()
    for info in states.values():
        state = torch.load(io.BytesIO(data[info.offset : info.offset + info.length]), weights_only=True)
        assert len(state) == 1 and state[0].numel() == 0 and state[0].dtype == torch.uint8


def test_a_release_is_replaced_when_forced_and_by_a_whole_one(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hf_model, "snapshot_download", lambda name, **_: str(model) if name == "Org/Name" else "")
    arguments = ["--hf", "Org/Name", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert main([*arguments, "--force"]) == 0
    before = (tmp_path / "out" / "release" / "__0_0.distcp").read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(release, "from_hf", full)
    assert main([*arguments, "--force"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TRACKER, "release"]
    assert (tmp_path / "out" / "release" / "__0_0.distcp").read_bytes() == before


@pytest.mark.parametrize("force", [True, False])
def test_the_checkpoints_of_a_run_are_never_touched(model, tmp_path, force):
    (tmp_path / "run" / "iter_0000007").mkdir(parents=True)
    (tmp_path / "run" / TRACKER).write_text("7")
    with pytest.raises(CheckpointError, match="run"):
        write_release(model, tmp_path / "run", force=force)
    assert (tmp_path / "run" / TRACKER).read_text() == "7"
