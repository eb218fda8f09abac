"""Reading torch_dist checkpoints tensor by tensor, with torch alone: no model, no process group, no GPU.

Checkpoints stack all layers of a kind into one tensor, ``decoder.layers.self_attention.linear_proj.weight [L, ...]``;
older ones keep a tensor per layer, and some put ``module.`` or ``model.`` in front. ``ModelTensors`` shows them all
under one naming, ``decoder.layers.<i>.<parameter>``, and reads one layer at a time. A weight with an adapter
(``lora.py``) is read merged. Optimizer, RNG and scheduler entries are not model tensors and are skipped.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, LoadPlan, ReadItem
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from ..system.errors import MemAgentError
from .folders import damaged
from .lora_weights import adapted_weight, adapter_names, fits, merged

_NOT_MODEL = re.compile(r"optimizer|_extra_state|(^|\.)rng_state|opt_param_scheduler|rerun_state")
_PREFIX = re.compile(r"^((module|model)\.)+")
_STACKED = re.compile(r"decoder\.layers\.(?!\d+\.)(.+)")
OUTPUT_LAYER = "output_layer.weight"
PADDED = ("embedding.word_embeddings.weight", OUTPUT_LAYER)
_FUSED = {
    ".input_layernorm.weight": ".self_attention.linear_qkv.layer_norm_weight",
    ".pre_mlp_layernorm.weight": ".mlp.linear_fc1.layer_norm_weight",
}


def stacked_name(name: str) -> tuple[str, int | None]:
    """The key a uniform name has in new checkpoints, and its place in that tensor if the key holds all layers."""
    match = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name)
    return (f"decoder.layers.{match[2]}", int(match[1])) if match else (name, None)


def stored_name(name: str) -> str:
    """The uniform name of a parameter, also where the layer spec keeps the norms as modules of their own."""
    for own, fused in _FUSED.items():
        if name.endswith(own):
            return name.removesuffix(own) + fused
    return name


def misfit(found: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> str | None:
    """One line: the first tensor that is missing, extra or of the wrong shape, and how many more; None if all fit.

    A padded vocabulary fits. Tensors of the vocabulary come first, since they tell tied from untied models.
    """
    problems = {name: f"missing: {name} {list(shape)}" for name, shape in expected.items() if name not in found}
    problems |= {name: f"extra: {name} {list(shape)}" for name, shape in found.items() if name not in expected}
    for name, shape in expected.items():
        stored = found.get(name, shape)
        padded = name in PADDED and stored[:1] > shape[:1] and stored[1:] == shape[1:]
        if stored != shape and not padded:
            problems[name] = f"mis-shaped: {name} is {list(stored)}, the model has {list(shape)}"
            if name in PADDED and stored[:1] < shape[:1]:
                problems[name] += ", and only a larger vocabulary can be cut to fit"
    if OUTPUT_LAYER in problems and OUTPUT_LAYER not in found:
        problems[OUTPUT_LAYER] += " (the checkpoint's embeddings are tied, the config says tie_word_embeddings=false)"
    if OUTPUT_LAYER in problems and OUTPUT_LAYER not in expected:
        problems[OUTPUT_LAYER] += " (the checkpoint's embeddings are untied, the config says tie_word_embeddings=true)"
    if not problems:
        return None
    first = min(problems, key=lambda name: name not in PADDED)
    return problems[first] + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")


# --- .metadata -------------------------------------------------------------------------------------------------------


_DESCRIPTIONS = {
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "TensorStorageMetadata",
        "BytesStorageMetadata", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.distributed.checkpoint.planner": {
        "SavePlan", "WriteItem", "WriteItemType", "TensorWriteData", "BytesIOWriteData"},
    "torch.distributed._shard.sharded_tensor.metadata": {"TensorProperties", "MEM_FORMAT_ENCODING"},  # torch < 2.2
    "torch": {"Size", *(str(v).removeprefix("torch.") for v in vars(torch).values() if isinstance(v, torch.dtype))},
    "torch.serialization": {"_get_layout"},
    "builtins": {"set", "frozenset", "list", "dict", "tuple", "int", "bool", "slice"},
    "collections": {"OrderedDict", "defaultdict"},
    "pathlib": {"PosixPath"},
    "pathlib._local": {"PosixPath"},
}


class _Unpickler(pickle.Unpickler):
    """Of ``.metadata``: a pickle runs whatever it names, so nothing may be named but what describes tensors. Classes
    of the Megatron that wrote it are not needed.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("megatron."):
            return _Unknown
        if (module, name) == ("builtins", "getattr"):
            return _member  # of an enum, as Python 3.11.0 to 3.11.3 pickles it
        if name not in _DESCRIPTIONS.get(module, ()):
            raise pickle.UnpicklingError(f"asks for {module}.{name}, which describes no tensor")
        return super().find_class(module, name)


def _member(kind: type[Enum], name: str) -> Enum:
    return kind[name]


class _Unknown:
    """Stands for an object that describing tensors does not need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def read_metadata(folder: str | Path) -> Metadata:
    """What ``folder/.metadata`` holds, whose files are there and long enough. Raises DamagedCheckpoint."""
    with damage_explained(folder, ".metadata"):
        with (Path(folder) / ".metadata").open("rb") as pickled:
            metadata = _Unpickler(pickled).load()
        if not isinstance(metadata, Metadata):
            raise damaged(folder, ".metadata", "describes no tensors")
        ends: dict[str, int] = {}
        for info in metadata.storage_data.values():
            ends[info.relative_path] = max(ends.get(info.relative_path, 0), info.offset + info.length)
    for name, end in ends.items():
        file = Path(folder) / name
        size = file.stat().st_size if file.is_file() else None
        if size is None or size < end:
            raise damaged(folder, name, "is missing" if size is None else f"has {size} of at least {end} bytes")
    return metadata


def check_bytes(folder: str | Path, metadata: Metadata) -> None:
    """Read all of it against the checksums in the zip files that torch writes, which reading a tensor passes over."""
    for index, info in metadata.storage_data.items():
        with damage_explained(folder, info.relative_path):
            with (Path(folder) / info.relative_path).open("rb") as file:
                file.seek(info.offset)
                stored = zipfile.ZipFile(io.BytesIO(file.read(info.length)))
            if stored.testzip() is not None:
                raise damaged(folder, info.relative_path, f"the checksum of {index.fqn} is another")


@contextlib.contextmanager
def damage_explained(folder: str | Path, file: str) -> Iterator[None]:
    """Whatever reading a broken file raises becomes DamagedCheckpoint: KeyError, UnicodeDecodeError, ..."""
    try:
        yield
    except FileNotFoundError as error:
        raise damaged(folder, Path(error.filename or file).name, "is missing") from None
    except (MemAgentError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise damaged(folder, file, cause) from error


# --- tensors ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    key: str
    layer: int | None
    """Index into the stacked tensor; None if the entry is this tensor alone."""
    shape: tuple[int, ...]


class ModelTensors:
    """The model's tensors in one checkpoint folder (the one with ``.metadata``), by uniform name."""

    def __init__(self, folder: str | Path) -> None:
        metadata = read_metadata(folder)
        self._folder, self._reader = folder, FileSystemReader(folder)
        self._reader.set_up_storage_reader(metadata, is_coordinator=True)
        entries = metadata.state_dict_metadata.items()
        self._stored = {key: entry for key, entry in entries if isinstance(entry, TensorStorageMetadata)}
        found = dict(_sources(self._stored))
        self._adapters = {name: source for name, source in found.items() if adapted_weight(name)}
        self._sources = {name: source for name, source in found.items() if name not in self._adapters}
        for name in self._adapters:
            self._check_adapter(adapted_weight(name) or "")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: source.shape for name, source in self._sources.items()}

    def _check_adapter(self, weight: str) -> None:
        names = adapter_names(weight)
        missing = [name for name in (weight, *names.values())
                   if name not in self._sources and name not in self._adapters]
        if missing:
            raise damaged(self._folder, ".metadata", f"an adapter without {missing[0]}")
        of_parts = {part: self._adapters[name].shape for part, name in names.items()}
        if not fits(self._sources[weight].shape, **of_parts):
            raise damaged(self._folder, ".metadata", f"the adapter of {weight} does not fit it")

    def read(self, name: str) -> torch.Tensor:
        """A tensor of ``shapes``; where it has an adapter, merged in float32."""
        tensor, names = self._read(self._sources[name]), adapter_names(name)
        if names["a"] not in self._adapters:
            return tensor
        return merged(tensor, **{field: self._read(self._adapters[part]) for field, part in names.items()})

    def _read(self, source: _Source) -> torch.Tensor:
        stored = self._stored[source.key]
        offsets, sizes = [0] * len(stored.size), list(stored.size)
        if source.layer is not None:
            offsets[0], sizes[0] = source.layer, 1
        chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        with damage_explained(self._folder, source.key):
            target = torch.zeros(sizes, dtype=stored.properties.dtype)
            items = create_read_items_for_chunk_list(source.key, stored, [chunk])
            self._reader.read_data(LoadPlan(items), _Into(target)).wait()
        return target.view(source.shape)


def _sources(stored: dict[str, TensorStorageMetadata]) -> Iterator[tuple[str, _Source]]:
    for key, entry in stored.items():
        if _NOT_MODEL.search(key):
            continue
        name, shape = _PREFIX.sub("", key), tuple(entry.size)
        stacked = _STACKED.fullmatch(name)
        if stacked is None:
            yield stored_name(name), _Source(key, None, shape)
            continue
        for layer in range(shape[0]):
            yield stored_name(f"decoder.layers.{layer}.{stacked[1]}"), _Source(key, layer, shape[1:])


class _Into(DefaultLoadPlanner):
    """Puts every piece that is read where it belongs in one tensor."""

    def __init__(self, target: torch.Tensor) -> None:
        super().__init__()
        self._target = target

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        where = zip(read_item.dest_offsets, read_item.lengths, strict=True)
        return self._target[tuple(slice(start, start + length) for start, length in where)]

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        pass
