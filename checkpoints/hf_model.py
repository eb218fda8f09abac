"""A Hugging Face model by folder or by hub id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from ..agents import agent_class
from ..agents.longest_turn import longest_turn, shortening
from ..agents.vocabulary import Vocabulary
from ..config import Config, ConfigError

_WEIGHTS = ["*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx"]
_UNLIMITED = 2**30
_STEP = 64
"""What an engine's context is rounded up to: a template that is a token longer, say by a host's own chat template
options, still fits."""


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


def with_local_models(config: Config, *, weights: bool = True) -> Config:
    """The config with folders for the models that the agent itself needs, downloaded where they are hub ids.

    Raises:
        ConfigError: one cannot be had.
    """
    names = agent_class(config).model_settings(config)
    folders = {name.upper(): str(local_folder(getattr(config, name), name.upper(), weights=weights)) for name in names}
    return Config.from_mapping(config.to_mapping() | folders)


def with_engine_length(config: Config, folder: Path, vocabulary: Vocabulary) -> Config:
    """The config with its engine context settled for the model in ``folder``.

    ENGINE_MAX_LEN=0 becomes the agent's longest turn, rounded up as far as the model's positions go.

    Raises:
        ConfigError: the longest turn does not fit; the line names what makes it shorter.
    """
    with_local_models(config, weights=False)
    positions = model_positions(folder) or _UNLIMITED
    longest = longest_turn(config, vocabulary)
    length = config.engine_max_len or min(-(-longest // _STEP) * _STEP, positions)
    _check_positions(length, positions, folder)
    if longest > length:
        limit = "ENGINE_MAX_LEN" if config.engine_max_len else f"the positions of the model in {folder}"
        prompts = f", shorten MEM_PROMPTS={config.mem_prompts}" if config.mem_prompts else ""
        higher = ", or raise ENGINE_MAX_LEN" if longest <= positions else ""
        raise ConfigError(
            f"the longest turn of AGENT={config.agent} has {longest} tokens with its reply, the engine holds {length} "
            f"({limit}); lower one of {', '.join(shortening(config, vocabulary))}{prompts}{higher}"
        )
    return replace(config, engine_max_len=length)


def with_serving_length(config: Config, folder: Path, vocabulary: Vocabulary) -> Config:
    """As ``with_engine_length``, for a server that is asked in EVAL_MODE alone.

    The one prompt of ``direct`` and ``rag`` is cut to the engine, so that any engine will do. ENGINE_MAX_LEN=0 becomes
    all positions for ``direct``.
    """
    if config.eval_mode == "recurrent":
        return with_engine_length(config, folder, vocabulary)
    positions = model_positions(folder)
    if config.eval_mode == "direct" and not (config.engine_max_len or positions):
        raise ConfigError(f"{folder}/config.json names no max_position_embeddings; set ENGINE_MAX_LEN")
    most = positions or _UNLIMITED
    unset = most if config.eval_mode == "direct" else min(longest_turn(config, vocabulary), most)
    length = config.engine_max_len or unset
    _check_positions(length, most, folder)
    return replace(config, engine_max_len=length)


def model_positions(folder: Path) -> int:
    """``max_position_embeddings`` of the model in ``folder``; 0 where it names none."""
    try:
        content = orjson.loads((folder / "config.json").read_bytes())
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{folder}/config.json is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{folder}/config.json is not a JSON object")
    return content.get("max_position_embeddings") or 0


def _check_positions(length: int, positions: int, folder: Path) -> None:
    if length > positions:
        raise ConfigError(f"ENGINE_MAX_LEN={length}: the model in {folder} has {positions} positions")
