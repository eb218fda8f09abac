"""Hugging Face model folders: what the config asks for, what the files hold, and writing one. Needs no Megatron.

Files are mapped for reading, so memory stays near the tensor that is read; writing makes one shard at a time.
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

from ..system.files import DiskFull
from .folders import CheckpointError, complete_folder
from .hf_model import TOKENIZER_FILES, model_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_INDEX = "model.safetensors.index.json"
_IGNORED = "rotary_emb.inv_freq"
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
SHARD_SIZE = 5 * 10**9
"""Bytes of a weights file at most."""


# --- reading ---------------------------------------------------------------------------------------------------------


class HfTensors:
    """Every tensor in a folder's safetensors files: of the index where there is one, else of all files. A copy of a
    tied output layer is left out.
    """

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointError where there are none, or config.json ties an output layer that is another."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Any] = {}
        files = {path.name for path in folder.glob("*.safetensors")}
        if (folder / _INDEX).is_file():
            files = set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values())
        for file in sorted(files):
            try:
                tensors = safe_open(folder / file, "pt")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"{folder / file}: not readable as safetensors: {error}") from None
            for name in tensors.keys():
                if not name.endswith(_IGNORED):
                    self.shapes[name], self._files[name] = tuple(tensors.get_slice(name).get_shape()), tensors
        if not self.shapes:
            raise CheckpointError(f"{folder}: no *.safetensors weights")
        if _OUTPUT in self.shapes and _EMBEDDING in self.shapes and model_config(folder).get("tie_word_embeddings"):
            if not torch.equal(self.read(_OUTPUT), self.read(_EMBEDDING)):
                raise CheckpointError(f"{folder}: {_OUTPUT} is another than {_EMBEDDING}, to which config.json ties "
                                       "it; set its tie_word_embeddings to false if both were trained")
            del self.shapes[_OUTPUT]

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor


_ONLY = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False,
         "partial_rotary_factor": 1.0}
_ONLY_ROPE: dict[str, dict[str, Any]] = {
    "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}
"""What megatron-core computes for these models, by name in ``config.json``."""


def trainable_config(folder: Path) -> Any:
    """transformers' config of a model that trains exactly. Raises CheckpointError where it would not."""
    from transformers import AutoConfig  # seconds, which reading weights does not need

    kind = model_config(folder).get("model_type")
    if kind not in ("qwen2", "qwen3", "llama"):
        raise CheckpointError(f"{folder}: {kind} is not supported; use Qwen2, Qwen3 or Llama")
    hf_config: Any = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    found = vars(hf_config) | hf_config.rope_parameters
    for name, value in (_ONLY_ROPE.get(found["rope_type"], {"rope_type": "default"}) | _ONLY).items():
        if found.get(name, value) != value:
            raise CheckpointError(f"{folder}: {kind} with {name}={found[name]} is not supported")
    return hf_config


def hf_shapes(hf_config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the Hugging Face model, without the copy of a tied output layer."""
    from transformers import AutoModelForCausalLM  # four seconds, which reading weights does not need

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager", trust_remote_code=False)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if hf_config.tie_word_embeddings:
        del shapes[_OUTPUT]
    return shapes


def check_weights(hf_config: PretrainedConfig, folder: str | Path) -> HfTensors:
    """The tensors in ``folder``, which are read later.

    Loading would otherwise fail deep inside a library, or, with fewer layers in the config than in the files, not at
    all.

    Raises:
        CheckpointError: one of the config's is missing, too much or of another shape.
    """
    tensors = HfTensors(Path(folder))
    if problem := first_difference(tensors.shapes, hf_shapes(hf_config)):
        raise CheckpointError(f"{folder} and its config.json differ: {problem}")
    return tensors


def first_difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first entry that is missing, too much or another, in words; None where all are equal."""
    for name in (*wanted, *found):
        if found.get(name) != wanted.get(name):
            return f"{name} is {found.get(name, 'missing')} and should be {wanted.get(name, 'absent')}"
    return None


# --- writing ---------------------------------------------------------------------------------------------------------


def write_model(
    output: str | Path, made_of: Sequence[Path], sizes: Mapping[str, int],
    made: Callable[[str], Sequence[tuple[str, torch.Tensor]]], files: Mapping[str, bytes], *, force: bool,
) -> None:
    """The model folder ``output``; it appears when it is complete.

    Weights files have at most SHARD_SIZE, or one tensor; there is an index if there are several.

    Args:
        made_of: the folders that it is made of; configuration and tokenizer are those of the first.
        sizes: bytes of each name, in the order in which they are written.
        made: the named tensors of a name.
        files: what else is in it, by name.
        force: whether it may replace a folder that is there.
    """
    plan = split_state_dict_into_shards_factory(
        dict(sizes), get_storage_size=int, filename_pattern="model{suffix}.safetensors", max_shard_size=SHARD_SIZE
    )
    weight_map: dict[str, str] = {}
    with complete_folder(Path(output), force, made_of) as draft:
        copy_model_files(made_of[0], draft)
        for name, content in files.items():
            (draft / name).write_bytes(content)
        for file, names in plan.filename_to_tensors.items():
            tensors = dict(pair for name in names for pair in made(name))
            save_weights(tensors, draft / file)
            weight_map |= dict.fromkeys(tensors, file)
        if plan.is_sharded:
            index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}
            (draft / _INDEX).write_text(json.dumps(index, indent=2) + "\n")


def save_weights(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """A safetensors file with the permissions of any new file; the library's own can be read by its owner alone.

    Raises:
        DiskFull: of the file no part is left.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
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
