"""torch_dist to Hugging Face, back, and the mean of several: bit for bit, and complete or not there at all."""

import json
import pickle
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from mem_agent.checkpoints import average, convert, hf_folder
from mem_agent.checkpoints.bridge import build_bridge, expected_tensors
from mem_agent.checkpoints.checkpoint import ModelTensors
from mem_agent.checkpoints.folders import TRACKER, CheckpointError
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_model import load_vocabulary, refuse_foreign_code
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.system.errors import MemAgentError
from mem_agent.system.files import DiskFull
from mem_agent.tests.helpers.tiny_model import make_tiny_model

Weights = dict[str, torch.Tensor]
EMBEDDING, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"


def read(folder: Path) -> Weights:
    tensors = HfTensors(folder)
    return {name: tensors.read(name) for name in tensors.shapes}


def same(folder: Path, wanted: Weights) -> bool:
    found = read(folder)
    equal = [found[n].dtype == wanted[n].dtype and torch.equal(found[n], wanted[n]) for n in wanted if n in found]
    return set(found) == set(wanted) and all(equal)


def write(folder: Path, weights: Weights, **change: object) -> Weights:
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder, **change)
    return weights


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


def test_a_torn_checkpoint_does_not_lose_the_others_and_what_is_converted_is_kept(run, tmp_path, capsys):
    model, save_path, _ = run
    folder = shutil.copytree(save_path, tmp_path / "run")
    shutil.copytree(folder / "iter_0000001", folder / "iter_0000004")
    (folder / "iter_0000004" / ".metadata").write_bytes(b"")
    arguments, made = ["--input", str(folder), "--hf", str(model)], folder / "hf" / "iter_0000001"
    assert convert.main([*arguments, "--iteration", "1"]) == 0
    written = (made / "model.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    assert convert.main([*arguments, "--all"]) == 1 and "iter_0000004" in capsys.readouterr().err
    assert (made / "model.safetensors").stat().st_mtime_ns == written and made.with_name("iter_0000003").is_dir()


@pytest.mark.parametrize("other,name", [({"layers": 3}, "decoder.layers.2"), ({"tied": False}, "output_layer")])
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
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(CheckpointError, match="FORCE=1"):
        convert.convert(save_path, model, tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(DiskFull, match="out"):
        patch.setattr(hf_folder, "save_file", Mock(side_effect=OSError(28, "No space left on device")))
        convert.convert(save_path, model, tmp_path / "out", force=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "precious"]
    convert.convert(save_path, model, tmp_path / "out", force=True)
    assert same(tmp_path / "out", weights) and not (tmp_path / "out" / "precious").exists()


# --- code that comes with files -------------------------------------------------------------------------------------


@dataclass
class Attack:
    """Unpickled without a guard, it makes the file ``victim``."""

    victim: Path

    def __reduce__(self):
        return Path.touch, (self.victim,)


def test_code_in_the_metadata_is_not_run(run, tmp_path):
    source = shutil.copytree(run[1] / "iter_0000003", tmp_path / "iter_0000003")
    metadata = pickle.loads((source / ".metadata").read_bytes())
    (source / ".metadata").write_bytes(pickle.dumps(replace(metadata, planner_data=Attack(tmp_path / "victim"))))
    with pytest.raises(CheckpointError, match=r"\.metadata"):
        convert.convert(source, run[0], tmp_path / "out")
    assert not (tmp_path / "victim").exists()


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


@pytest.mark.parametrize("architecture,tied,dtype", [
    ("qwen2", False, torch.float32), ("qwen3", True, torch.bfloat16), ("llama", False, torch.float16),
])
def test_every_architecture_comes_back_bit_for_bit(tmp_path, architecture, tied, dtype):
    model = make_tiny_model(tmp_path / "hf", architecture=architecture, tied=tied, vocab=501, heads=4, kv_heads=2)
    cast = {name: tensor.to(dtype) for name, tensor in read(model).items()}
    wanted = write(model, cast, dtype=str(dtype).removeprefix("torch."))
    folder = write_release(model, tmp_path / "out")
    assert ModelTensors(folder).shapes == expected_tensors(build_bridge(model))
    convert.convert(tmp_path / "out", model, tmp_path / "back")
    assert same(tmp_path / "back", wanted)


def test_the_layout_is_that_of_the_hosts_own_tool(tmp_path):
    folder = write_release(make_tiny_model(tmp_path / "hf", architecture="qwen2"), tmp_path / "out")
    assert {path.name for path in folder.iterdir()} == {".metadata", "__0_0.distcp", "common.pt", "metadata.json"}
    common = torch.load(folder / "common.pt", weights_only=False)
    assert (common["checkpoint_version"], common["args"].num_layers, common["args"].vocab_size) == (3.0, 2, 512)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    assert metadata.state_dict_metadata["decoder.layers.self_attention.linear_qkv.weight"].size == (2, 128, 64)
    # What a Transformer Engine model asks for: of two layers seven modules each, and the last norm's.
    states = sorted(index.fqn for index in metadata.storage_data if "_extra_state" in index.fqn)
    assert len(states) == 15 and states[1] == "decoder.layers.mlp.linear_fc1._extra_state/shard_0_2"


def test_a_copy_of_a_tied_output_layer_is_left_out_and_another_one_refused(run, tmp_path):
    model, weights = shutil.copytree(run[0], tmp_path / "hf"), run[2]
    write(model, weights | {OUTPUT: weights[EMBEDDING].clone()})
    write_release(model, tmp_path / "out")
    convert.convert(tmp_path / "out", model, tmp_path / "back")
    assert same(tmp_path / "back", weights)
    write(model, weights | {OUTPUT: weights[EMBEDDING] + 1})
    with pytest.raises(CheckpointError, match=r"/hf: lm_head\.weight"):
        write_release(model, tmp_path / "other")


# --- the mean of several --------------------------------------------------------------------------------------------


def test_the_mean_is_taken_in_float32_and_cast_back_and_of_a_diverged_model_there_is_none(tmp_path, capsys):
    folders = [make_tiny_model(tmp_path / f"{seed}", seed) for seed in range(3)]
    models = []
    for number, folder in enumerate(folders):
        halves = {name: tensor.bfloat16() for name, tensor in read(folder).items()}
        models.append(write(folder, halves, dtype="bfloat16", transformers_version=f"5.{number}"))
    average.average(folders, tmp_path / "out")
    means = {name: sum(model[name].float() for model in models) / 3 for name in models[0]}
    assert same(tmp_path / "out", {name: mean.bfloat16() for name, mean in means.items()})
    for norm in (torch.zeros(64), torch.full([64], float("nan"), dtype=torch.bfloat16)):
        write(folders[2], models[2] | {"model.norm.weight": norm})
        assert average.main(["--inputs", *map(str, folders), "--output", str(tmp_path / "none")]) == 1
        assert "model.norm.weight" in capsys.readouterr().err and not (tmp_path / "none").exists()
