"""Checkpoints: each file of a folder that somebody else has made, read as a run, a conversion or TORCH_DIST does."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from contextlib import suppress
from functools import cache
from pathlib import Path

from mem_agent.checkpoints.folders import TRACKER, has_adapters, latest, newest_of_run, prune, resolve
from mem_agent.checkpoints.hashes import HASHES, check_hashes
from mem_agent.tests.fuzz.target import Target, written

_TENSOR_BYTES = 2 * 3 * 2  # [2, 3] in bfloat16


def _metadata(data: bytes) -> None:
    from mem_agent.checkpoints.metadata import check_files, read_metadata

    folder = written("checkpoint/__0_0.distcp", bytes(_TENSOR_BYTES)).parent
    written("checkpoint/.metadata", data)
    before = set(os.listdir(folder))
    check_files(folder, read_metadata(folder))
    assert set(os.listdir(folder)) == before


@cache
def _described() -> bytes:
    import torch
    from torch.distributed.checkpoint import metadata as stored
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    size, start = torch.Size([2, 3]), torch.Size([0, 0])
    tensor = stored.TensorStorageMetadata(
        stored.TensorProperties(dtype=torch.bfloat16), size, [stored.ChunkStorageMetadata(start, size)]
    )
    index = {stored.MetadataIndex("a", start): _StorageInfo("__0_0.distcp", 0, _TENSOR_BYTES)}
    return pickle.dumps(stored.Metadata({"a": tensor}, storage_data=index))


_KEY = "decoder.final_layernorm.weight"


def _saved(value: object) -> bytes:
    import torch

    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def _common(data: bytes) -> None:
    from mem_agent.checkpoints.whole import _load_common

    assert isinstance(_load_common(written("checkpoint/common.pt", data).parent), dict)


@cache
def _settings() -> bytes:
    import argparse

    import torch

    args = argparse.Namespace(num_layers=2, untie_embeddings_and_output_weights=False)
    return _saved({"args": args, "steps": 3, "host_state": {"rollout": 2}, "rng_state": {"torch": torch.arange(9)}})


def _tensors(data: bytes) -> None:
    """The tensor of a checkpoint as it lies in ``__0_0.distcp``, which ``.metadata`` says rightly."""
    import torch
    from torch.distributed.checkpoint import metadata as stored
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    from mem_agent.checkpoints.torch_dist import ModelTensors

    size, start = torch.Size([2, 3]), torch.Size([0, 0])
    tensor = stored.TensorStorageMetadata(
        stored.TensorProperties(dtype=torch.float32), size, [stored.ChunkStorageMetadata(start, size)]
    )
    place = {stored.MetadataIndex(_KEY, start): _StorageInfo("__0_0.distcp", 0, len(data))}
    written("tensors/.metadata", pickle.dumps(stored.Metadata({_KEY: tensor}, storage_data=place)))
    read = ModelTensors(written("tensors/__0_0.distcp", data).parent).read(_KEY)
    assert read.shape == size and read.dtype == torch.float32


def _parts() -> tuple[bytes, ...]:
    import torch

    whole = torch.arange(12.0).reshape(4, 3)
    return _saved(whole[:2].clone()), _saved(whole[1:3]), _saved(whole[:2].bfloat16())


def _adapted(data: bytes) -> None:
    """``.metadata`` of a weight with an adapter, whose tensors are there."""
    from mem_agent.checkpoints.torch_dist import ModelTensors

    written("adapted/.metadata", data)
    tensors = ModelTensors(written("adapted/__0_0.distcp", b"".join(_of_adapter().values())).parent)
    for name, shape in tensors.shapes.items():
        assert tensors.read(name).shape == shape


@cache
def _of_adapter() -> dict[str, bytes]:
    """A weight [4, 3], two projections of two rows, rank 1."""
    import torch

    name = "decoder.layers.0.mlp.linear_fc1"
    return {
        f"{name}.weight": _saved(torch.arange(12.0).reshape(4, 3)), f"{name}.lora.a": _saved(torch.ones(2, 3)),
        f"{name}.lora.b": _saved(torch.ones(4, 1)), f"{name}.lora.scale": _saved(torch.tensor([2.0])),
        f"{name}.lora.part": _saved(torch.tensor([0, 0, 1, 1], dtype=torch.uint8)),
    }


def _of_adapted() -> bytes:
    import torch
    from torch.distributed.checkpoint import metadata as stored
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    entries, places, at = {}, {}, 0
    for name, content in _of_adapter().items():
        tensor = torch.load(io.BytesIO(content))
        start = torch.Size([0] * tensor.dim())
        entries[name] = stored.TensorStorageMetadata(stored.TensorProperties(dtype=tensor.dtype), tensor.shape,
                                                     [stored.ChunkStorageMetadata(start, tensor.shape)])
        places[stored.MetadataIndex(name, start)] = _StorageInfo("__0_0.distcp", at, len(content))
        at += len(content)
    return pickle.dumps(stored.Metadata(entries, storage_data=places))


def _weights(data: bytes) -> None:
    """Of an embedding model: what passes is read by torch, whose errors are told where the model is."""
    import torch

    from mem_agent.checkpoints.torch_weights import check_weights

    file = written("model/pytorch_model.bin", data)
    check_weights(file)
    with suppress(Exception):
        torch.load(file, map_location="cpu", weights_only=True)


def _states() -> tuple[bytes, ...]:
    """In the form of today, and in that of before zips."""
    import torch

    old, state = io.BytesIO(), torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict()
    torch.save(state, old, _use_new_zipfile_serialization=False)
    return _saved(state), old.getvalue()


def _hashes(data: bytes) -> None:
    written("hashed/a", b"x"), written("hashed/b", b"")
    check_hashes(written(f"hashed/{HASHES}", data).parent)


def _listed() -> bytes:
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in (("a", b"x"), ("b", b"")))
    return f"# {hashlib.sha256(lines.encode()).hexdigest()}\n{lines}".encode()


def _tracker(data: bytes) -> None:
    run = written(f"run of two/{TRACKER}", data).parent
    for number in (4, 9):
        written(f"run of two/iter_{number:07d}/.metadata", b"")
    there = {run / "iter_0000004", run / "iter_0000009"}
    assert {latest(run), newest_of_run(run), resolve(run)} <= there and not has_adapters(run)
    prune(run, 2)
    assert all(map(Path.is_dir, there))


_WORDS = (
    b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"archive/data.pkl", b"archive/data/0", b"\x08\0",
    b"\xff\xff", b"torch", b"FloatStorage", b"torch._utils", b"_rebuild_tensor_v2", b"builtins", b"bytearray", b"R",
    b"Q", b"b", b"\x86", b"q\0", b"h\0", b"K\xff", b"\x8a\x06\0\0\0\0\0\1", b"argparse", b"Namespace", b"host_state",
)
TARGETS = (
    Target("metadata", _metadata, (_described(),),
           (b"os", b"system", b"torch", b"builtins", b"\x8c\x02", b"\x93", b"R.")),
    Target("common_pt", _common, (_settings(),), _WORDS, slow=True),
    Target("distcp", _tensors, _parts(), _WORDS, slow=True),
    Target("adapter", _adapted, (_of_adapted(),), (b".lora.a", b".lora.part", b".weight", b"decoder.layers.", b"K\x01",
           b"K\0", b"torch", b"uint8", b"\x85", b"\x86"), slow=True),
    Target("torch_weights", _weights, _states(), (*_WORDS, b"_metadata", b"OrderedDict", b"storage"), slow=True),
    Target("hashes", _hashes, (_listed(), _listed().partition(b"\n")[2]),
           (b"#", b"\n", b"  ", b"..", b"/", b"SHA256 (")),
    Target("tracker", _tracker, (b"9", b"4\n"), (b"release", b"\n", b"0", b"-", b"\xd9\xa3")),
)
