"""Hugging Face model folders: what the config asks for, what the files hold, and writing one. Needs no Megatron.

Reading maps one file at a time and copies one tensor out of it, so memory stays near that tensor.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..system.errors import MemAgentError, reason_of
from ..system.files import DiskFull, naming, write_atomically
from .hf_model import TOKENIZER_FILES

if TYPE_CHECKING:
    from transformers import PretrainedConfig

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_CODES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_INDEX = "model.safetensors.index.json"
_IGNORED = "rotary_emb.inv_freq"
SHARD_SIZE = 5 * 10**9
"""Bytes of a weights file at most."""


class UnsupportedModel(MemAgentError):
    """This model cannot be expressed exactly: the message names the folder, what it asks for and what is supported."""


# --- reading ---------------------------------------------------------------------------------------------------------


class HfTensors:
    """Every tensor in a folder's safetensors files: of the index where there is one, else of all files."""

    def __init__(self, folder: str | Path) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.codes: dict[str, str] = {}
        """Number formats as safetensors names them, such as BF16."""
        self._files: dict[str, Path] = {}
        self._open: tuple[Path, Any] | None = None
        index = _index(Path(folder))
        for file in sorted(set(index.values())) or sorted(Path(folder).glob("*.safetensors")):
            try:
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():
                        if not name.endswith(_IGNORED) and (not index or index.get(name) == file):
                            entry = tensors.get_slice(name)
                            self.shapes[name] = tuple(entry.get_shape())
                            self.codes[name], self._files[name] = entry.get_dtype(), file
            except (SafetensorError, OSError) as error:
                raise UnsupportedModel(f"{file}: not readable as safetensors: {error}") from None
        if not self.shapes:
            raise UnsupportedModel(f"{folder}: no *.safetensors weights")

    def read(self, name: str) -> torch.Tensor:
        file = self._files[name]
        if self._open is None or self._open[0] != file:  # one at a time: its header is read each time it is opened
            self._open = file, safe_open(file, "pt")
        tensor: torch.Tensor = self._open[1].get_tensor(name)
        return tensor

    def dtype(self, name: str) -> torch.dtype:
        if self.codes[name] not in _CODES:
            raise UnsupportedModel(f"{self._files[name]}: {name} is stored as {self.codes[name]}; supported are "
                                   f"{', '.join(DTYPES)}")
        return _CODES[self.codes[name]]


def _index(folder: Path) -> dict[str, Path]:
    """Where the index says that each tensor is, in this folder; empty where there is no index."""
    if not (folder / _INDEX).is_file():
        return {}
    try:
        files = json.loads((folder / _INDEX).read_bytes())["weight_map"]
    except (ValueError, KeyError) as error:
        raise UnsupportedModel(f"{folder / _INDEX}: cannot be read: {reason_of(error)}") from None
    return {name: folder / file for name, file in files.items()}


def hf_shapes(hf_config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the Hugging Face model, without the copy of a tied output layer."""
    from transformers import AutoModelForCausalLM  # four seconds, which reading weights does not need

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager", trust_remote_code=False)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if hf_config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    return shapes


def check_weights(hf_config: PretrainedConfig, folder: str | Path) -> None:
    """Raise UnsupportedModel, naming the first tensor that is missing, too much or of another shape.

    Loading would otherwise fail deep inside a library, or, with fewer layers in the config than in the files, not at
    all. Only the file headers are read.
    """
    wanted, found = hf_shapes(hf_config), HfTensors(folder).shapes
    if hf_config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    for name in (*wanted, *found):
        if found.get(name) != wanted.get(name):
            stored, asked = found.get(name, "missing"), wanted.get(name, "none")
            raise UnsupportedModel(f"{folder}: {name} is {stored}, its config.json asks for {asked}")


# --- writing ---------------------------------------------------------------------------------------------------------


def write_shards(
    folder: Path, sizes: Mapping[str, int], made: Callable[[str], Sequence[tuple[str, torch.Tensor]]]
) -> None:
    """Weights files of at most SHARD_SIZE, or one tensor, with an index if there are several.

    Args:
        sizes: bytes of each name, in the order in which they are written.
        made: the named tensors of a name.
    """
    plan = split_state_dict_into_shards_factory(
        dict(sizes), get_storage_size=int, filename_pattern="model{suffix}.safetensors", max_shard_size=SHARD_SIZE
    )
    weight_map: dict[str, str] = {}
    total = 0
    for file, names in plan.filename_to_tensors.items():
        tensors = dict(pair for name in names for pair in made(name))
        save_weights(tensors, folder / file)
        weight_map |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    if plan.is_sharded:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_atomically(folder / _INDEX, (json.dumps(index, indent=2) + "\n").encode())


def save_weights(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """A safetensors file with the permissions of any new file; the library's own can be read by its owner alone.

    Raises:
        DiskFull: of the file no part is left.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
        with naming(path):
            save_file(tensors, path, metadata={"format": "pt"})
    except SafetensorError as error:  # holds the operating system's
        path.unlink(missing_ok=True)
        raise DiskFull(f"{path}: {str(error).removeprefix('Error while serializing: ')}") from None
    path.chmod(mode)


def copy_model_files(source: Path, folder: Path) -> None:
    """Configuration and tokenizer, all that a model folder has besides its weights."""
    for pattern in ("config.json", "generation_config.json", *TOKENIZER_FILES):
        for file in filter(Path.is_file, source.glob(pattern)):
            shutil.copyfile(file, folder / file.name)
