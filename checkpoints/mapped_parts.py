"""Parts of a tensor that many layers share: each layer is read alone, out of the file as it lies on disk.

Megatron writes a part for each layer. A checkpoint that something else has written may have all layers in one, which
torch reads whole for each of them: with 36 layers 36 times, with as many as there may be a thousand times.

Invariant: what is read is a part that ``torch_files.py`` has passed, so that it lies unpacked within its file.
"""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from .torch_files import slice_of


class _Lies(NamedTuple):
    """Where the numbers of a part are, in bytes of its file; sizes and strides have an axis of the bytes of each."""

    at: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class MappedParts:
    """Of the files of one checkpoint."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._lying: dict[tuple[str, int], _Lies] = {}
        self._bytes = lru_cache(maxsize=4)(self._mapped)

    def read(self, place: _StorageInfo, starts: torch.Size, lengths: torch.Size) -> torch.Tensor:
        """``lengths`` numbers from ``starts`` on, along each axis of the part at ``place``."""
        lies = self._lying.get((place.relative_path, place.offset))
        if lies is None:
            lies = self._lying[place.relative_path, place.offset] = self._looked_at(place)
        wanted = torch.as_strided(self._bytes(place.relative_path), lies.sizes, lies.strides, lies.at)
        for axis, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            wanted = wanted.narrow(axis, start, length)
        # A copy, as numbers of a file may lie at odd places.
        return wanted.clone(memory_format=torch.contiguous_format).view(lies.dtype).squeeze(-1)

    def _looked_at(self, place: _StorageInfo) -> _Lies:
        with (self._folder / place.relative_path).open("rb") as file, FakeTensorMode():
            part = io.BufferedReader(slice_of(file, place))
            tensor: Any = torch.load(part, map_location="cpu", weights_only=True)
        each = tensor.dtype.itemsize
        storage = tensor.untyped_storage()._checkpoint_offset or 0  # none, of no numbers
        first = place.offset + storage + tensor.storage_offset() * each
        return _Lies(first, (*tensor.shape, each), (*(step * each for step in tensor.stride()), 1), tensor.dtype)

    def _mapped(self, name: str) -> torch.Tensor:
        return torch.from_numpy(np.memmap(self._folder / name, np.uint8, "c"))


def spans_layers(stored: TensorStorageMetadata) -> bool:
    """Whether a part of a stacked tensor holds more than one layer."""
    return any(chunk.sizes[:1] > (1,) for chunk in stored.chunks)
