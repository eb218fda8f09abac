"""A Hugging Face model by folder or by hub id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from ..agents.vocabulary import Vocabulary
from ..config import Config, ConfigError

_WEIGHTS = ["*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx"]


def local_folder(name: str, variable: str = "HF_CKPT", *, weights: bool = True) -> Path:
    """The folder of model ``name``, downloaded if it is a hub id, with or without its weights.

    Raises:
        ConfigError: it is neither a model folder nor a hub id that can be loaded.
    """
    if not name:
        raise ConfigError(f"{variable} is not set; name a Hugging Face model folder or hub id")
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{variable}={name!r}: the folder has no config.json")
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ConfigError(f"{variable}={name!r}: no such folder")
    try:
        return Path(snapshot_download(name, ignore_patterns=None if weights else _WEIGHTS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{variable}={name!r}: no such folder, and not to be had from the hub: {reason}") from None


def load_vocabulary(folder: Path | str) -> Vocabulary:
    """The tokenizer of the model in ``folder``.

    Raises:
        ConfigError: it has none, or none that can be used.
    """
    from transformers import AutoTokenizer

    try:
        return Vocabulary(AutoTokenizer.from_pretrained(folder, trust_remote_code=True))
    except Exception as error:  # for a damaged file every tokenizer class has errors of its own, KeyError among them
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(
            f"the tokenizer of {folder} cannot be used ({reason}); the folder needs the model's tokenizer.json"
        ) from error


def with_engine_length(config: Config, folder: Path) -> Config:
    """The config with its engine context settled for the model in ``folder``: ENGINE_MAX_LEN=0 becomes what the MEM_
    budgets need, as far as the model's positions go.

    Raises:
        ConfigError: a chunk with an old and a new memory cannot fit.
    """
    try:
        model_config = orjson.loads((folder / "config.json").read_bytes())
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{folder}/config.json is not JSON: {error}") from None
    positions = model_config.get("max_position_embeddings") or 2**30
    length = config.engine_max_len or min(config.longest_request, positions)
    if length > positions:
        raise ConfigError(f"ENGINE_MAX_LEN={length}: the model in {folder} has {positions} positions")
    needed = config.longest_text + config.shown_memory + config.mem_max_memory
    if needed >= length:
        raise ConfigError(
            f"an engine context of {length} tokens (ENGINE_MAX_LEN, or the model's positions) cannot hold "
            f"{config.longest_text_words} and {needed - config.longest_text} tokens of memories and reply "
            f"(MEM_MAX_MEMORY={config.mem_max_memory})"
        )
    return replace(config, engine_max_len=length)
