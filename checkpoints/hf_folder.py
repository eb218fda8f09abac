"""Hugging Face model folders: what the config asks for, what the files hold, and writing one. Needs no Megatron.

Reading maps one file at a time and copies one tensor out of it, so memory stays near that tensor.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..system.atomic_file import full_disk_named, write_atomically
from ..system.bounded_json import loads
from ..system.errors import MemAgentError
from ..system.links import remedy
from .damage import DamagedCheckpoint
from .hashes import HASHES, check_hashes, write_hashes
from .links import leads_out

if TYPE_CHECKING:
    from transformers import PretrainedConfig

TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "added_tokens*", "chat_template*")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_CODES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_INDEX = "model.safetensors.index.json"
_IGNORED = ("rotary_emb.inv_freq",)
_LONG_HEADER = 2**20
"""Bytes: as 10,000 tensors have; the format bears a hundred times as many, blanks among them."""


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
        self._open: dict[Path, Any] = {}
        index = _index(Path(folder))
        for file in sorted(set(index.values())) or _weight_files(Path(folder)):
            if not file.is_file():  # for a pipe's writer safetensors waits, deaf to SIGTERM
                raise UnsupportedModel(f"{file}: not readable as safetensors: no such file")
            try:
                with safe_open(file, "pt") as tensors:
                    for name in tensors.keys():
                        if not name.endswith(_IGNORED) and index.get(name, file) == file:
                            entry = tensors.get_slice(name)
                            self.shapes[name] = tuple(entry.get_shape())
                            self.codes[name], self._files[name] = entry.get_dtype(), file
            except (SafetensorError, OSError) as error:
                raise UnsupportedModel(f"{file}: not readable as safetensors: {error}") from None
        for name, file in index.items():
            if name not in self.shapes and not name.endswith(_IGNORED):
                raise UnsupportedModel(f"{file}: has no tensor {name[:200]}, which {_INDEX} says is in it")
        self.unlisted = frozenset(self.shapes).difference(index) if index else frozenset[str]()

    @property
    def files(self) -> list[Path]:
        """All that are read, which may be links."""
        return sorted(set(self._files.values()))

    def read(self, name: str) -> torch.Tensor:
        file = self._files[name]
        if file not in self._open:  # its header is read anew each time that it is opened
            self._open = {other: opened for other, opened in self._open.items() if _has_long_header(other)}
            self._open[file] = safe_open(file, "pt")
        tensor: torch.Tensor = self._open[file].get_tensor(name)
        return tensor

    def dtype(self, name: str) -> torch.dtype:
        if self.codes[name] not in _CODES:
            supported = ", ".join(DTYPES)
            raise UnsupportedModel(
                f"{self._files[name]}: {name} is stored as {self.codes[name]}; supported are {supported}"
            )
        return _CODES[self.codes[name]]


def _has_long_header(file: Path) -> bool:
    """Of which tensors in turns with other files' would make a reading of each."""
    with file.open("rb") as content:
        return int.from_bytes(content.read(8), "little") > _LONG_HEADER


def _index(folder: Path) -> dict[str, Path]:
    """Where the index says that each tensor is, in this folder; empty where there is no index."""
    if not (folder / _INDEX).is_file():
        return {}
    try:
        files = loads((folder / _INDEX).read_bytes())["weight_map"]
        outside = next((file for file in files.values() if not _is_name(file)), None)
        paths = {name: folder / file for name, file in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UnsupportedModel(f"{folder / _INDEX}: not an index of safetensors files") from None
    if outside is not None:
        raise UnsupportedModel(f"{folder / _INDEX}: names {outside[:80]!r}, which is no file of the folder")
    return paths


def _is_name(file: str) -> bool:
    return file not in ("", "..") and file == PurePosixPath(file).name


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
            # Said, as what config.json says of it may be a hub id, whose code transformers would fetch.
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
    tensors = HfTensors(folder)
    found = tensors.shapes
    if hf_config.tie_word_embeddings:
        found.pop("lm_head.weight", None)
    for name, shape in wanted.items():
        if name not in found:
            raise UnsupportedModel(f"{folder}: no tensor {name}, which its config.json asks for with shape {shape}")
        if name in tensors.unlisted:
            raise UnsupportedModel(f"{folder}: {_INDEX} does not list {name}, which is in its files")
        if found[name] != shape:
            raise UnsupportedModel(f"{folder}: {name} has shape {found[name]}, its config.json asks for {shape}")
    extra = sorted(set(found) - set(wanted))
    if extra:
        raise UnsupportedModel(f"{folder}: {len(extra)} tensors its config.json has no place for, e.g. {extra[0]}")


def check_unchanged(folder: str | Path) -> None:
    """That weights which this pack wrote are as it wrote them; all of them are read. Others pass, nothing is said.

    Raises:
        DamagedCheckpoint: a file has changed or is gone: the message names it.
    """
    if not (Path(folder) / HASHES).exists():
        return
    try:
        check_hashes(Path(folder))
    except DamagedCheckpoint as error:
        raise DamagedCheckpoint(f"{error}; copy the folder again, or convert its checkpoint anew") from error


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
    write_hashes(folder, "*.safetensors")  # configuration, card and tokenizer are people's to edit


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
        with full_disk_named(path):
            yield
    except SafetensorError as error:
        raise WeightsNotWritten(f"{path}: {str(error).removeprefix('Error while serializing: ')}") from None


def copy_model_files(source: Path, folder: Path) -> None:
    """Configuration and tokenizer, all that a model folder has besides its weights.

    Raises:
        UnsupportedModel: one of them is a link to a file elsewhere (``links.py``).
    """
    for pattern in ("config.json", "generation_config.json", *TOKENIZER_FILES):
        for file in source.glob(pattern):
            if file.is_file():
                if leads_out(file, source):
                    what = "a link out of the model's folder, which is not copied"
                    raise UnsupportedModel(f"{file}: {what}; {remedy(file)}")
                shutil.copyfile(file, folder / file.name)
