"""Parts of a tensor that many layers share: of each layer the bytes are read from where they lie in the file.

Megatron writes a part for each layer. A checkpoint that something else has written may have all layers in one, which
torch reads whole for each of them: with 36 layers 36 times, with as many as there may be a thousand times.

Invariant: what is read is a part that ``torch_files.py`` has passed, so that it lies unpacked within its file. Should
that be cut since, one line says so: as memory (``mmap``) it would end the process.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from .damage import damaged
from .torch_files import slice_of


class _Lies(NamedTuple):
    """Where the numbers of a part are, in bytes of its file; the strides have an axis more, of the bytes of each."""

    at: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class SharedParts:
    """Of the files of one checkpoint."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._lying: dict[tuple[str, int], _Lies] = {}

    def read(self, place: _StorageInfo, starts: torch.Size, lengths: torch.Size) -> torch.Tensor:
        """``lengths`` numbers from ``starts`` on, along each axis of the part at ``place``."""
        lies = self._lying.get((place.relative_path, place.offset))
        if lies is None:
            lies = self._lying[place.relative_path, place.offset] = self._looked_at(place)
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        if len(ends) != len(lies.sizes) or any(end > size for end, size in zip(ends, lies.sizes, strict=True)):
            raise ValueError(f"has a part of {list(lies.sizes)!s:.80}, of which {ends!s:.80} is asked for")
        sizes = (*lengths, lies.dtype.itemsize)
        first = lies.at + sum(start * step for start, step in zip(starts, lies.strides[:-1], strict=True))
        last = first + sum((size - 1) * step for size, step in zip(sizes, lies.strides, strict=True))
        content = self._bytes(place.relative_path, first, last + 1 - first if all(sizes) else 0)
        return torch.as_strided(content, sizes, lies.strides).contiguous().view(lies.dtype).squeeze(-1)

    def _bytes(self, name: str, start: int, length: int) -> torch.Tensor:
        content = np.fromfile(self._folder / name, np.uint8, length, offset=start)
        if len(content) < length:
            raise damaged(self._folder, name, f"ends before byte {start + length}, and did not when it was looked at")
        return torch.from_numpy(content)

    def _looked_at(self, place: _StorageInfo) -> _Lies:
        with (self._folder / place.relative_path).open("rb") as file, FakeTensorMode():
            part = io.BufferedReader(slice_of(file, place))
            tensor: Any = torch.load(part, map_location="cpu", weights_only=True)
        each = tensor.dtype.itemsize
        storage = tensor.untyped_storage()._checkpoint_offset or 0  # none, of no numbers
        first = place.offset + storage + tensor.storage_offset() * each
        return _Lies(first, tensor.shape, (*(step * each for step in tensor.stride()), 1), tensor.dtype)


def spans_layers(stored: TensorStorageMetadata) -> bool:
    """Whether a part of a stacked tensor holds more than one layer."""
    return any(chunk.sizes[:1] > (1,) for chunk in stored.chunks)
