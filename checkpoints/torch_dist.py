"""Reading torch_dist checkpoints tensor by tensor: no model, no process group, no GPU.

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
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, LoadPlan
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from ..system.errors import reason_of
from .folders import CheckpointError, DamagedCheckpoint
from .hf_folder import first_difference
from .lora import FIELDS, merged

_NOT_MODEL = re.compile(r"optimizer|_extra_state|(^|\.)rng_state|opt_param_scheduler|rerun_state")
_PREFIX = re.compile(r"^((module|model)\.)+")
_STACKED = re.compile(r"decoder\.layers\.(?!\d+\.)(.+)")
PADDED = {"embedding.word_embeddings.weight", "output_layer.weight"}
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
        name = name.replace(own, fused)
    return name


# --- .metadata -------------------------------------------------------------------------------------------------------


_DESCRIPTIONS = re.compile(
    r"torch\.distributed\.checkpoint\.metadata\.(\w*Metadata|MetadataIndex|StorageMeta|TensorProperties)"
    r"|torch\.distributed\.checkpoint\.metadata\._MEM_FORMAT_ENCODING"
    r"|torch\.distributed\.checkpoint\.filesystem\.(_StorageInfo|_StoragePrefix)"
    r"|torch\.distributed\.checkpoint\.planner\.(SavePlan|WriteItem|WriteItemType|TensorWriteData|BytesIOWriteData)"
    r"|torch\.(Size|bool|b?float\d\w*|u?int\d+|complex\d+|serialization\._get_layout)"
    r"|builtins\.(set|frozenset|list|dict|tuple|int|bool|slice)|collections\.(OrderedDict|defaultdict)"
    r"|pathlib\.(_local\.)?PosixPath"
)


class _Unpickler(pickle.Unpickler):
    """Reads ``.metadata``. A pickle runs whatever it names, and megatron-core loads the same file unrestricted after
    this pass, so only names that describe tensors are allowed. Megatron's own classes become blanks.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("megatron."):
            return _Blank
        if (module, name) == ("builtins", "getattr"):
            return lambda kind, member: kind[member]  # an enum, as Python 3.11.0 to 3.11.3 pickles it
        if not _DESCRIPTIONS.fullmatch(f"{module}.{name}"):
            raise pickle.UnpicklingError(f"it names {module}.{name}, which describes no tensor")
        return super().find_class(module, name)


class _Blank:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


@contextlib.contextmanager
def damage_named(folder: Path, file: str) -> Iterator[None]:
    """Turn any error from reading a broken file into DamagedCheckpoint: KeyError, UnicodeDecodeError, ..."""
    try:
        yield
    except (Exception, CheckpointException) as error:  # torch's is not an Exception
        if isinstance(error, PermissionError | MemoryError | torch.OutOfMemoryError):
            raise
        raise DamagedCheckpoint(f"{folder}: the checkpoint is damaged: {file}: {reason_of(error)}") from error


def check_zip(file: Path | io.BytesIO) -> None:
    """Verify the checksums of a file that ``torch.save`` wrote, which torch itself does not. Raises BadZipFile."""
    if name := zipfile.ZipFile(file).testzip():
        raise zipfile.BadZipFile(f"wrong checksum for {name}")


# --- tensors ---------------------------------------------------------------------------------------------------------


class ModelTensors:
    """The model's tensors in one checkpoint folder (the one with ``.metadata``), by uniform name."""

    def __init__(self, folder: str | Path) -> None:
        """Raises DamagedCheckpoint where ``.metadata`` cannot be read."""
        self._folder, self._reader = Path(folder), FileSystemReader(folder)
        with damage_named(self._folder, ".metadata"):
            with (self._folder / ".metadata").open("rb") as pickled:
                self._metadata: Metadata = _Unpickler(pickled).load()
            self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
        self._sources: dict[str, tuple[str, int | None, tuple[int, ...]]] = {}
        """Uniform name -> its key, its index into a stacked tensor (None: it is this one alone) and its shape."""
        for key, entry in self._metadata.state_dict_metadata.items():
            if not isinstance(entry, TensorStorageMetadata) or _NOT_MODEL.search(key):
                continue
            name, shape = _PREFIX.sub("", key), tuple(entry.size)
            if stacked := _STACKED.fullmatch(name):
                for layer in range(shape[0]):
                    uniform = stored_name(f"decoder.layers.{layer}.{stacked[1]}")
                    self._sources[uniform] = (key, layer, shape[1:])
            else:
                self._sources[stored_name(name)] = (key, None, shape)
        self.shapes = {name: shape for name, (_, _, shape) in self._sources.items() if ".lora." not in name}

    def check_fit(self, expected: dict[str, tuple[int, ...]]) -> None:
        """Raises CheckpointError where this is a checkpoint of another model. A padded vocabulary fits."""
        found = dict(self.shapes)
        for name in PADDED & found.keys() & expected.keys():
            found[name] = (min(found[name][0], expected[name][0]), *found[name][1:])
        if problem := first_difference(found, expected):
            raise CheckpointError(
                f"{self._folder} does not fit HF_CKPT (--hf): {problem}; name the model that was trained")

    def read(self, name: str) -> torch.Tensor:
        """A tensor of ``shapes``; where it has an adapter, merged in float32."""
        tensor, module = self._read(name), name.removesuffix(".weight")
        if f"{module}.lora.a" not in self._sources:
            return tensor
        return merged(tensor, *(self._read(f"{module}.lora.{field}") for field in FIELDS))

    def _read(self, name: str) -> torch.Tensor:
        key, layer, shape = self._sources[name]
        stored: Any = self._metadata.state_dict_metadata[key]
        offsets, sizes = [0] * len(stored.size), list(stored.size)
        if layer is not None:
            offsets[0], sizes[0] = layer, 1
        chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        with damage_named(self._folder, key):
            target = torch.zeros(sizes, dtype=stored.properties.dtype)
            items = create_read_items_for_chunk_list(key, stored, [chunk])
            self._reader.read_data(LoadPlan(items), _Into(target)).wait()
        return target.view(shape)

    def check_bytes(self) -> None:
        """Read every byte, optimizer included, and verify the checksums. Raises DamagedCheckpoint."""
        for info in self._metadata.storage_data.values():
            with damage_named(self._folder, info.relative_path):
                with (self._folder / info.relative_path).open("rb") as file:
                    file.seek(info.offset)
                    check_zip(io.BytesIO(file.read(info.length)))


class _Into(DefaultLoadPlanner):
    """Puts every piece that is read where it belongs in one tensor."""

    def __init__(self, target: torch.Tensor) -> None:
        super().__init__()
        self._target = target

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        return self._target
