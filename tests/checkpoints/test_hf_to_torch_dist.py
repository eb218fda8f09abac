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
from mem_agent.checkpoints.checkpoint import load_weights
from mem_agent.checkpoints.convert import convert
from mem_agent.checkpoints.folders import TRACKER, CheckpointError
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_to_torch_dist import main, write_release
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config
from mem_agent.training.trainer import Trainer


def read(folder: Path) -> dict[str, torch.Tensor]:
    tensors = HfTensors(folder)
    return {name: tensors.read(name) for name in tensors.shapes}


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> bool:
    equal = [found[n].dtype == wanted[n].dtype and torch.equal(found[n], wanted[n]) for n in wanted if n in found]
    return set(found) == set(wanted) and all(equal)


def cast(folder: Path, dtype: torch.dtype) -> None:
    file = folder / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(json.dumps(config))


def split(folder: Path) -> None:
    """The weights in two files and an index, with a file beside them that does not belong."""
    tensors = load_file(folder / "model.safetensors")
    names = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in set(names.values()):
        save_file({name: tensors[name] for name in tensors if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    save_file({name: torch.zeros_like(tensor) for name, tensor in tensors.items()}, folder / "model.safetensors")


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_every_architecture_comes_back_bit_for_bit(tmp_path, architecture, tied, dtype):
    model = make_tiny_model(tmp_path / "hf", architecture=architecture, tied=tied, vocab=501, heads=4, kv_heads=2)
    cast(model, dtype)
    wanted = read(model)
    split(model)
    folder = write_release(model, tmp_path / "out")
    assert ModelTensors(folder).shapes == expected_tensors(build_bridge(model))
    convert(tmp_path / "out", model, tmp_path / "back")
    assert same(read(tmp_path / "back"), wanted)


def test_the_trainer_starts_from_it(tmp_path):
    model = make_tiny_model(tmp_path / "hf", tied=True)
    write_release(model, tmp_path / "out")
    other = make_tiny_model(tmp_path / "other", seed=1, tied=True)
    started = Trainer(make_config(other, torch_dist=str(tmp_path / "out")))
    assert same(started.export_hf(), read(model))
    load_weights(tmp_path / "out" / "release", started.bridge, started.model)


def test_the_number_format_can_be_chosen_and_must_be_when_there_are_several(tmp_path):
    model = make_tiny_model(tmp_path / "hf")
    folder = write_release(model, tmp_path / "out", dtype="bfloat16")
    tensors = ModelTensors(folder)
    assert {tensors.read(name).dtype for name in tensors.shapes} == {torch.bfloat16}
    convert(folder, model, tmp_path / "back", dtype="bfloat16")
    assert same(read(tmp_path / "back"), {name: tensor.bfloat16() for name, tensor in read(model).items()})
    mixed = load_file(model / "model.safetensors")
    save_file(mixed | {"model.norm.weight": mixed["model.norm.weight"].half()}, model / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight.*--dtype"):
        write_release(model, tmp_path / "mixed")
    write_release(model, tmp_path / "mixed", dtype="float32")


def test_the_layout_is_that_of_the_hosts_own_tool(tmp_path):
    model = make_tiny_model(tmp_path / "hf", architecture="qwen2", tied=False)
    folder = write_release(model, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TRACKER, "release"]
    assert (tmp_path / "out" / TRACKER).read_text() == "release"
    hosts = {".metadata", "__0_0.distcp", "common.pt", "metadata.json"}
    assert {path.name for path in folder.iterdir()} == hosts
    assert json.loads((folder / "metadata.json").read_text())["sharded_backend"] == "torch_dist"
    common = torch.load(folder / "common.pt", weights_only=False)
    assert common["checkpoint_version"] == 3.0 and common["content_metadata"]["singleton_local_shards"] is False
    args = common["args"]
    assert (args.num_layers, args.num_attention_heads, args.num_query_groups, args.kv_channels) == (2, 2, 1, 32)
    assert (args.hidden_size, args.vocab_size, args.num_experts, args.q_lora_rank) == (64, 512, None, None)
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (1, 1)
    entries = pickle.loads((folder / ".metadata").read_bytes()).state_dict_metadata
    assert {key: tuple(entry.size) for key, entry in entries.items() if "_extra_state" not in key} == {
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


def test_every_extra_state_that_a_transformer_engine_model_asks_for_is_there_and_empty(tmp_path):
    folder = write_release(make_tiny_model(tmp_path / "hf"), tmp_path / "out")
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    states = {index.fqn: info for index, info in metadata.storage_data.items() if "_extra_state" in index.fqn}
    layer = ("linear_qkv", "linear_proj", "core_attention", "q_layernorm", "k_layernorm", "linear_fc1", "linear_fc2")
    asked = [f"{'mlp' if 'fc' in module else 'self_attention'}.{module}" for module in layer]
    names = {f"decoder.layers.{module}._extra_state/shard_{i}_2" for module in asked for i in range(2)}
    assert set(states) == names | {"decoder.final_layernorm._extra_state/shard_0_1"}
    data = (folder / "__0_0.distcp").read_bytes()
    for info in states.values():
        state = torch.load(io.BytesIO(data[info.offset : info.offset + info.length]), weights_only=True)
        assert len(state) == 1 and state[0].numel() == 0 and state[0].dtype == torch.uint8


def test_an_existing_release_is_replaced_only_when_forced(tmp_path):
    model = make_tiny_model(tmp_path / "hf")
    arguments = ["--hf", str(model), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert main(arguments) == 1
    assert main([*arguments, "--force"]) == 0


def test_the_model_may_be_a_hub_id(tmp_path, monkeypatch):
    model = make_tiny_model(tmp_path / "hf")
    monkeypatch.setattr(hf_model, "snapshot_download", lambda name, **_: str(model) if name == "Org/Name" else "")
    assert main(["--hf", "Org/Name", "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "release" / ".metadata").is_file()


@pytest.mark.parametrize("force", [True, False])
def test_the_checkpoints_of_a_run_are_never_touched(tmp_path, force):
    (tmp_path / "run" / "iter_0000007").mkdir(parents=True)
    (tmp_path / "run" / TRACKER).write_text("7")
    with pytest.raises(CheckpointError, match="run"):
        write_release(make_tiny_model(tmp_path / "hf"), tmp_path / "run", force=force)
    assert (tmp_path / "run" / TRACKER).read_text() == "7"


def test_an_interrupted_write_leaves_the_old_release(tmp_path, monkeypatch, capsys):
    model = make_tiny_model(tmp_path / "hf")
    write_release(model, tmp_path / "out")
    before = ModelTensors(tmp_path / "out" / "release").read("decoder.final_layernorm.weight")

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(release, "from_hf", full)
    assert main(["--hf", str(model), "--output", str(tmp_path / "out"), "--force"]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [TRACKER, "release"]
    assert torch.equal(ModelTensors(tmp_path / "out" / "release").read("decoder.final_layernorm.weight"), before)
    with pytest.raises(CheckpointError):
        write_release(model, tmp_path / "out")
