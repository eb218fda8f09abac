"""The folder through which new weights reach the engines: one complete ``model.safetensors``, replaced atomically.

It lies in shared memory when that has room for two copies, else in the run's folder, and it belongs to one run: a
new folder each time, removed at the end. Its file is only ever absent or complete, so an engine that is restarted at
any moment reads either the previous or the current weights, never a torn file (which would break the engine). Weights
that were written and are there no longer are an error: an engine would go on with the starting ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from ..checkpoints.hf_folder import HfTensors, save_weights
from ..system.files import scratch_folder
from ..system.processes import FleetError

SHARED_MEMORY = Path("/dev/shm")
# The old and the new copy exist together, each float32 where the checkpoint may be 16 bits, plus half of that as room
# for others.
ROOM_FACTOR = 6


@dataclass
class SyncFolder:
    path: Path
    written: bool = False
    """Whether engines are to have its weights: false until the first sync."""

    @property
    def file(self) -> Path:
        return self.path / "model.safetensors"

    def check(self) -> None:
        """Raises FleetError where weights were written and are gone."""
        if self.written and not self.file.is_file():
            raise FleetError(f"{self.file}: was removed while engines needed it, as systemd does where a user's last "
                             "session ends (loginctl enable-linger); the same command continues from the last "
                             "checkpoint")

    def write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the weights; readers of the old file keep it. Raises DiskFull, and the old ones stay."""
        self.path.mkdir(exist_ok=True)
        draft = self.path / "draft.tmp"
        save_weights(_storable(tensors), draft)
        os.replace(draft, self.file)
        self.written = True


@contextlib.contextmanager
def sync_folder(model: Path, fallback: Path) -> Iterator[SyncFolder]:
    """A new empty folder for checkpoints like ``model``, removed in the end."""
    size = sum(f.stat().st_size for f in model.glob("*.safetensors"))
    roomy = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_FACTOR * size
    parent = SHARED_MEMORY if roomy else fallback
    parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder("mem_agent-weights-", parent) as path:
        yield SyncFolder(path)


def checkpoint_names(model: Path) -> frozenset[str]:
    """The tensor names of a Hugging Face folder with safetensors. Raises FleetError for any other folder."""
    if not (model / "config.json").is_file():
        raise FleetError(f"{model}: not a Hugging Face model folder (no config.json); pass the folder of a checkpoint")
    if not any((model / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise FleetError(f"{model}: no model.safetensors and no model.safetensors.index.json; "
                         "save the checkpoint with safe_serialization")
    return frozenset(HfTensors(model).shapes)


def _storable(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """On the CPU, contiguous, and no two sharing memory (tied embeddings do, and the format cannot say so)."""
    result, seen = {}, set()
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous()
        storage = flat.untyped_storage().data_ptr()
        result[name] = flat.clone() if storage in seen else flat
        seen.add(storage)
    return result
