"""Hugging Face model folders: what the config asks for, what the files hold, and writing one. Needs no Megatron.

Reading maps one file at a time and copies one tensor out of it, so memory stays near that tensor.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..system.errors import MemAgentError
from ..system.files import naming, write_atomically

if TYPE_CHECKING:
    from transformers import PretrainedConfig

TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "added_tokens*", "chat_template*")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_CODES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_INDEX = "model.safetensors.index.json"
_IGNORED = ("rotary_emb.inv_freq",)
SHARD_SIZE = 5 * 10**9
"""Bytes of a weights file at most."""


class UnsupportedModel(MemAgentError):
    """This model cannot be expressed exactly: the message names the folder, what it asks for and what is supported."""


class WeightsNotWritten(MemAgentError):
    """Most often the disk is full: the message names the file."""


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
        for file in sorted(set(index.values())) or _weight_files(Path(folder)):
            try:
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():
                        if not name.endswith(_IGNORED) and (not index or index.get(name) == file):
                            entry = tensors.get_slice(name)
                            self.shapes[name] = tuple(entry.get_shape())
                            self.codes[name], self._files[name] = entry.get_dtype(), file
            except (SafetensorError, OSError) as error:
                raise UnsupportedModel(f"{file}: not readable as safetensors: {error}") from None
        for name, file in index.items():
            if name not in self.shapes and not name.endswith(_IGNORED):
                raise UnsupportedModel(f"{file}: has no tensor {name}, which {_INDEX} says is in it")

    def read(self, name: str) -> torch.Tensor:
        file = self._files[name]
        if self._open is None or self._open[0] != file:  # one at a time: its header is read each time it is opened
            self._open = file, safe_open(file, "pt")
        try:
            tensor: torch.Tensor = self._open[1].get_tensor(name)
        except SafetensorError as error:
            raise UnsupportedModel(f"{file}: {name} cannot be read: {error}") from None
        return tensor

    def dtype(self, name: str) -> torch.dtype:
        if self.codes[name] not in _CODES:
            supported = ", ".join(DTYPES)
            raise UnsupportedModel(
                f"{self._files[name]}: {name} is stored as {self.codes[name]}; supported are {supported}"
            )
        return _CODES[self.codes[name]]


def _index(folder: Path) -> dict[str, Path]:
    """Where the index says that each tensor is, in this folder; empty where there is no index."""
    if not (folder / _INDEX).is_file():
        return {}
    try:
        files = json.loads((folder / _INDEX).read_bytes())["weight_map"]
        return {name: folder / file for name, file in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UnsupportedModel(f"{folder / _INDEX}: not an index of safetensors files") from None


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UnsupportedModel(f"{folder}: no *.safetensors weights")
    return files


def hf_shapes(hf_config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the Hugging Face model, without the copy of a tied output layer."""
    from transformers import AutoModelForCausalLM  # four seconds, which reading weights does not need

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager", trust_remote_code=False)
    except Exception as error:  # sizes that do not fit each other end in whatever the model's code does with them
        reason = " ".join(str(error).split())[:300]
        raise UnsupportedModel(f"no model can be made of its config.json: {reason}") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if hf_config.tie_word_embeddings:
        del shapes["lm_head.weight"]
    return shapes


def check_weights(hf_config: PretrainedConfig, folder: str | Path) -> None:
    """Raise UnsupportedModel, naming the first tensor that is missing, too much or of another shape.

    Loading would otherwise fail deep inside a library, or, with fewer layers in the config than in the files, not at
    all. Only the file headers are read.
    """
    wanted = hf_shapes(hf_config)
    found = HfTensors(folder).shapes
    if hf_config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    for name, shape in wanted.items():
        if name not in found:
            raise UnsupportedModel(f"{folder}: no tensor {name}, which its config.json asks for with shape {shape}")
        if found[name] != shape:
            raise UnsupportedModel(f"{folder}: {name} has shape {found[name]}, its config.json asks for {shape}")
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise UnsupportedModel(f"{folder}: {len(extra)} tensors its config.json has no place for, e.g. {extra[0]}")


# --- writing ---------------------------------------------------------------------------------------------------------


def plan_shards(sizes: Mapping[str, int], shard_size: int) -> dict[str, list[str]]:
    """Names (of so many bytes) by file, in order; a file is larger than ``shard_size`` only for one large tensor."""
    pattern = "model{suffix}.safetensors"
    split = split_state_dict_into_shards_factory(
        dict(sizes), get_storage_size=int, filename_pattern=pattern, max_shard_size=shard_size
    )
    return split.filename_to_tensors


def write_shards(
    folder: Path, shards: Mapping[str, Sequence[str]], made: Callable[[str], Sequence[tuple[str, torch.Tensor]]]
) -> None:
    """The files of ``plan_shards``, with an index if there are several; ``made`` gives a name's named tensors."""
    weight_map: dict[str, str] = {}
    total = 0
    for file, names in shards.items():
        tensors = dict(pair for name in names for pair in made(name))
        save_weights(tensors, folder / file)
        weight_map |= dict.fromkeys(tensors, file)
        total += sum(tensor.nbytes for tensor in tensors.values())
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_atomically(folder / _INDEX, (json.dumps(index, indent=2) + "\n").encode())


def save_weights(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """A safetensors file with the permissions of any new file; the library's own can be read by its owner alone.

    Raises:
        WeightsNotWritten: of the file no part is left.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
        with weights_named(path):
            save_file(tensors, path, metadata={"format": "pt"})
    except WeightsNotWritten:
        path.unlink(missing_ok=True)
        raise
    path.chmod(mode)


@contextlib.contextmanager
def weights_named(path: Path) -> Iterator[None]:
    """Gives a full disk's error the name of what was written. Raises WeightsNotWritten."""
    try:
        with naming(path):
            yield
    except SafetensorError as error:
        raise WeightsNotWritten(f"{path}: {str(error).removeprefix('Error while serializing: ')}") from None


def copy_model_files(source: Path, folder: Path) -> None:
    """Configuration and tokenizer, all that a model folder has besides its weights."""
    for pattern in ("config.json", "generation_config.json", *TOKENIZER_FILES):
        for file in filter(Path.is_file, source.glob(pattern)):
            shutil.copyfile(file, folder / file.name)
