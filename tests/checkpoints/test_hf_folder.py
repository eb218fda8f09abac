"""Weights that are not those of the config are named before training, not deep inside a library."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mem_agent.checkpoints import hf_folder
from mem_agent.checkpoints.average import average
from mem_agent.checkpoints.bridge import UnsupportedModel, build_bridge
from mem_agent.checkpoints.hf_folder import (
    HfTensors,
    WeightsNotWritten,
    check_weights,
    copy_model_files,
    hf_shapes,
    plan_shards,
    save_weights,
    write_shards,
)
from mem_agent.serving.sync_folder import SyncFolder, checkpoint_names
from mem_agent.tests.helpers.small_files import files_of_at_most
from mem_agent.tests.helpers.tiny_model import make_tiny_model

FULL = ["full_attention"] * 3


def check(folder):
    check_weights(build_bridge(folder).hf_config, folder)


def edit_config(folder, **change):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_fits_itself(tmp_path, architecture, tied):
    folder = make_tiny_model(tmp_path, architecture=architecture, tied=tied)
    check(folder)
    assert hf_shapes(build_bridge(folder).hf_config) == HfTensors(folder).shapes


@pytest.mark.parametrize(
    "change,message",
    [
        ({"num_hidden_layers": 1, "layer_types": FULL[:1]}, r"has no place for, e.g. model\.layers\.1"),
        ({"num_hidden_layers": 3, "layer_types": FULL}, r"no tensor model\.layers\.2"),
        ({"num_hidden_layers": 3}, r"config\.json: "),
        ({"intermediate_size": 96}, "has shape"),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, r"no place for, e\.g\. .*k_norm"),
    ],
)
def test_another_config_is_named_in_one_line(tmp_path, change, message):
    folder = make_tiny_model(tmp_path)
    edit_config(folder, **change)
    with pytest.raises(UnsupportedModel, match=message) as error:
        check(folder)
    assert "\n" not in str(error.value)


def test_a_file_is_opened_once_for_all_its_tensors(tmp_path, monkeypatch):
    """Its header is read anew each time, and may name thousands."""
    for number in range(2):
        save_file({f"{number}.{n}": torch.full((2,), float(n)) for n in range(9)}, tmp_path / f"{number}.safetensors")
    tensors, opened = HfTensors(tmp_path), []
    monkeypatch.setattr(hf_folder, "safe_open", lambda *args: opened.append(args[0].name) or safe_open(*args))
    for name in sorted(tensors.shapes):
        assert tensors.read(name).tolist() == [float(name[2:])] * 2
    assert opened == ["0.safetensors", "1.safetensors"]


def test_a_long_header_is_not_read_again_for_tensors_in_turns_with_another_files(tmp_path, monkeypatch):
    monkeypatch.setattr(hf_folder, "_LONG_HEADER", 100)
    for number in range(3):
        save_file({f"{n}.{number}": torch.full((2,), float(n)) for n in range(9)}, tmp_path / f"{number}.safetensors")
    tensors, opened = HfTensors(tmp_path), []
    monkeypatch.setattr(hf_folder, "safe_open", lambda *args: opened.append(args[0].name) or safe_open(*args))
    for name in sorted(tensors.shapes):
        assert tensors.read(name).tolist() == [float(name[0])] * 2
    assert opened == ["0.safetensors", "1.safetensors", "2.safetensors"]


def test_no_kernel_of_the_hub_is_asked_for(tmp_path, monkeypatch):
    folder = make_tiny_model(tmp_path)
    edit_config(folder, attn_implementation="somebody/kernel")
    asked = []
    monkeypatch.setattr("transformers.integrations.hub_kernels.load_and_register_attn_kernel",
                        lambda *args, **kwargs: asked.append(args))
    assert hf_shapes(build_bridge(folder).hf_config) == HfTensors(folder).shapes and not asked


def test_torn_and_missing_files_are_named(tmp_path):
    folder = make_tiny_model(tmp_path)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    save_file({k: torch.cat([v, v]) if "k_norm" in k else v for k, v in tensors.items()}, weights)
    with pytest.raises(UnsupportedModel, match=r"k_norm\.weight has shape"):
        check(folder)
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(UnsupportedModel, match=r"model\.safetensors: not readable"):
        check(folder)
    weights.unlink()
    with pytest.raises(UnsupportedModel, match=r"no .*safetensors weights"):
        check(folder)


OUTSIDE = ["{mine}/model.safetensors", "../mine/model.safetensors", "./model.safetensors", "..", "", "a/b.safetensors"]


@pytest.mark.parametrize("named", OUTSIDE)
def test_an_index_names_no_file_of_another_folder(tmp_path, named):
    mine, theirs = make_tiny_model(tmp_path / "mine"), make_tiny_model(tmp_path / "theirs")
    index = {"weight_map": dict.fromkeys(HfTensors(mine).shapes, named.format(mine=mine))}
    (theirs / "model.safetensors.index.json").write_text(json.dumps(index))
    for read in (HfTensors, checkpoint_names, check, lambda folder: average([folder, mine], tmp_path / "mean")):
        with pytest.raises(UnsupportedModel, match=r"/theirs/model\.safetensors\.index\.json: names '") as error:
            read(theirs)
        assert "\n" not in str(error.value)


def test_weights_can_be_read_by_whoever_may_read_new_files(tmp_path):
    (tmp_path / "any").touch()
    write_shards(tmp_path, plan_shards({"a": 8, "b": 8}, 8), lambda name: [(name, torch.zeros(2))])
    assert {file.stat().st_mode for file in tmp_path.iterdir()} == {(tmp_path / "any").stat().st_mode}
    assert load_file(tmp_path / "model-00002-of-00002.safetensors").keys() == {"b"}


def test_weights_for_which_there_is_no_room_are_told_with_their_file_and_leave_none(tmp_path):
    told = pytest.raises(WeightsNotWritten, match=r"model\.safetensors: I/O error: File too large")
    with told, files_of_at_most(2**16):
        save_weights({"a": torch.zeros(2**15)}, tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_could_not_be_written_leave_the_engines_those_before(tmp_path):
    folder = SyncFolder(tmp_path)
    folder.write({"a": torch.ones(2)})
    with pytest.raises(WeightsNotWritten), files_of_at_most(2**16):
        folder.write({"a": torch.zeros(2**15)})
    assert load_file(folder.file)["a"].tolist() == [1, 1] and list(tmp_path.iterdir()) == [folder.file]


def test_a_models_links_lead_no_file_of_the_users_into_a_copy(tmp_path):
    (tmp_path / "key").write_text("of the user's")
    model, copy = tmp_path / "model", tmp_path / "copy"
    model.mkdir(), copy.mkdir()
    (model / "tokenizer_extra").symlink_to("../key")
    with pytest.raises(UnsupportedModel, match="/tokenizer_extra: a link out of the model's folder"):
        copy_model_files(model, copy)
    assert not list(copy.iterdir())


HASH = "6b" * 20


def test_links_of_the_hubs_cache_and_into_the_folder_are_copied(tmp_path):
    cache, copy = tmp_path / "models--a--b", tmp_path / "copy"
    revision = cache / "snapshots" / "0f"
    for folder in (cache / "blobs", revision, copy):
        folder.mkdir(parents=True)
    (cache / "blobs" / HASH).write_text("tokens")
    (revision / "tokenizer.json").symlink_to(f"../../blobs/{HASH}")
    (revision / "vocab.json").symlink_to("tokenizer.json")
    (tmp_path / "named").symlink_to(revision)
    copy_model_files(tmp_path / "named", copy)
    assert [(copy / name).read_text() for name in ("tokenizer.json", "vocab.json")] == ["tokens"] * 2
    assert not any(path.is_symlink() for path in copy.iterdir())
