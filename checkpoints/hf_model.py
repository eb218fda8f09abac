"""A Hugging Face model by folder or by hub id, and the settings of the agent that it was trained as.

Those lie beside its weights where this pack has converted it (``agent_settings.py``)::

    mem_agent.yaml            {mem_agent: {AGENT: gated, MEM_CHUNK_TOKENS: 1024, MEM_PROMPTS: mem_agent_prompts.yaml}}
    mem_agent_prompts.yaml    what MEM_PROMPTS of the run held, where it was set
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from ..agents import longest_turn
from ..agents.vocabulary import Vocabulary
from ..config import SETTINGS_FILE, Config, ConfigError, read_yaml
from ..system.errors import reason_of
from ..system.text import one_line
from .agent_settings import AGENT_FIELDS

REMEDY = "look at its code, and set TRUST_REMOTE_CODE=1 to run it"
_WEIGHTS = ["*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx"]
_TOKENIZER = ("tokenizer", "tokenization", "special_tokens_map", "added_tokens", "vocab", "merges", "spiece",
              "sentencepiece", "chat_template")
_UNLIMITED = 2**30
_STEP = 64
"""What an engine's context is rounded up to: a template that is a token longer, say by a host's own chat template
options, still fits."""


def local_folder(
    name: str, variable: str = "HF_CKPT", *, weights: bool = True, ignored: Sequence[str] = ()
) -> Path:
    """The folder of model ``name``, downloaded if it is a hub id: with or without weights, and without ``ignored``.

    Raises:
        ConfigError: it is neither a model folder nor a hub id that can be loaded.
    """
    if not name:
        raise ConfigError(f"{variable} is not set; name a Hugging Face model folder or hub id")
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{variable}={name!r}: the folder has no config.json{_model_near(folder)}")
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ConfigError(f"{variable}={name!r}: no such folder")
    try:
        return Path(snapshot_download(name, ignore_patterns=[*ignored, *([] if weights else _WEIGHTS)] or None))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = one_line(str(error), 200)
        raise ConfigError(f"{variable}={name!r}: no such folder, and not to be had from the hub: {reason}") from None


def read_json_object(file: Path) -> dict[str, Any]:
    """Of a model's folder. Raises ConfigError."""
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: cannot be read: {reason_of(error)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: is not a JSON object")
    return value


def model_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of the model in ``folder``. Raises ConfigError."""
    return read_json_object(folder / "config.json")


def refuse_foreign_code(folder: Path, trusted: bool) -> None:
    """Raises ConfigError where the model's files name Python of its own (``auto_map``) that is not ``trusted``: slime,
    vime and their engines run it without being asked.
    """
    for file in () if trusted else sorted(folder.glob("*config.json")):
        if read_json_object(file).get("auto_map"):
            raise ConfigError(f"{file} names Python that comes with the model (auto_map); {REMEDY}")


def _model_near(folder: Path) -> str:
    """Which model may be meant by a run, its folder of models, or a checkpoint that was converted."""
    places = (folder.glob("hf/*/config.json"), folder.glob("*/config.json"),
              folder.parent.glob(f"hf/{folder.name}/config.json"))
    found = next(filter(None, map(sorted, places)), [])
    return f"; a model is in {found[-1].parent}" if found else ""


_CLASSES = ("AGENT", "TASK")


def model_settings(folder: Path) -> dict[str, Any]:
    """The settings beside the weights in ``folder``, by variable; none where it has no such file.

    Raises:
        ConfigError: the file is damaged, or holds what is no model's to say.
    """
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return {}
    settings = read_yaml(file)
    for name in settings:
        if name not in AGENT_FIELDS:
            raise ConfigError(f"{file}: {name} is no setting of an agent; allowed: {', '.join(AGENT_FIELDS)}")
    if settings.get("MEM_PROMPTS"):
        settings["MEM_PROMPTS"] = str(folder / str(settings["MEM_PROMPTS"]))
    try:
        config = Config.from_mapping(settings)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    return {name: config.to_mapping()[name] for name in settings}


def config_for_model(folder: Path, env: Mapping[str, str] = os.environ) -> tuple[Config, str]:
    """The settings of ``env``, and where it says nothing those of the model in ``folder``.

    With a line for people that tells which came from there, and which of ``env`` are in their place; empty for none.

    Raises:
        ConfigError: a setting is bad.
    """
    own = model_settings(folder)
    config = Config.from_env(env, defaults=own)
    for name in _CLASSES:
        if ":" in str(own.get(name)) and not env.get(name) and not config.trust_remote_code:
            raise ConfigError(f"{folder / SETTINGS_FILE}: {name}={own[name]!r} is Python of its own; {REMEDY}, "
                              f"or set {name}")
    used, default = config.to_mapping(), Config().to_mapping()
    taken = {name: value for name, value in own.items() if not env.get(name) and value != default[name]}
    replaced = {name: used[name] for name, value in own.items() if not _alike(name, used[name], value)}
    parts = [f"settings from {folder / SETTINGS_FILE}: {_words(taken)}" if taken else ""]
    parts += [f"not those of {folder / SETTINGS_FILE}: {_words(replaced)}" if replaced else ""]
    return config, one_line("; ".join(filter(None, parts)))


def _alike(name: str, one: Any, other: Any) -> bool:
    if name == "MEM_PROMPTS" and one and other:
        return Path(one).is_file() and Path(other).is_file() and Path(one).read_bytes() == Path(other).read_bytes()
    return one == other


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in settings.items())


def load_vocabulary(folder: Path | str, trusted: bool = False) -> Vocabulary:
    """The tokenizer of the model in ``folder``; ``trusted``: also one that is Python of its own (TRUST_REMOTE_CODE).

    Raises:
        ConfigError: it has none, or none that can be used.
    """
    from transformers import AutoTokenizer

    try:
        known = {"local_files_only": not trusted, "trust_remote_code": trusted}
        return Vocabulary(AutoTokenizer.from_pretrained(folder, **known))
    except Exception as error:  # for a damaged file every tokenizer class has errors of its own, KeyError among them
        if not trusted and "trust_remote_code" in str(error):
            raise ConfigError(f"the tokenizer of {folder} is Python of its own; {REMEDY}") from None
        raise ConfigError(
            f"the tokenizer of {folder} cannot be used ({reason_of(error)}); "
            "the folder needs the model's tokenizer.json"
        ) from error


def tokenizer_hash(folder: Path) -> str:
    """Of all that ``load_vocabulary`` reads of a model's folder: vocabulary, special tokens and chat template."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file() and _of_a_tokenizer(path.name)):
        digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def _of_a_tokenizer(name: str) -> bool:
    return name.startswith(_TOKENIZER) or name.endswith((".jinja", ".tiktoken"))


def with_engine_length(config: Config, folder: Path, vocabulary: Vocabulary) -> Config:
    """The config with its engine context settled for the model in ``folder``.

    ENGINE_MAX_LEN=0 becomes the agent's longest turn, rounded up as far as the model's positions go.

    Raises:
        ConfigError: the longest turn does not fit; the line names what makes it shorter.
    """
    positions = model_positions(folder) or _UNLIMITED
    longest = longest_turn(config, vocabulary)
    length = config.engine_max_len or min(-(-longest // _STEP) * _STEP, positions)
    _check_positions(length, positions, folder)
    if longest > length:
        limit = "ENGINE_MAX_LEN" if config.engine_max_len else f"the positions of the model in {folder}"
        higher = ", or raise ENGINE_MAX_LEN" if longest <= positions else ""
        shorter = f", or shorten MEM_PROMPTS={config.mem_prompts}" if config.mem_prompts else ""
        raise ConfigError(
            f"the longest turn of AGENT={config.agent} has {longest} tokens with its reply, the engine holds {length} "
            f"({limit}); lower MEM_CHUNK_TOKENS={config.mem_chunk_tokens}, MEM_MAX_MEMORY={config.mem_max_memory} or "
            f"MEM_MAX_FINAL={config.mem_max_final}{shorter}{higher}"
        )
    return config.replace(engine_max_len=length)


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
    return config.replace(engine_max_len=length)


def model_positions(folder: Path) -> int:
    """``max_position_embeddings`` of the model in ``folder``; 0 where it names none."""
    return model_config(folder).get("max_position_embeddings") or 0


def parameter_count(model: Mapping[str, Any]) -> int:
    """Parameters of a Qwen2, Qwen3 or Llama with this ``config.json``, without norms and biases (0.1% of them)."""
    hidden, layers = model.get("hidden_size") or 0, model.get("num_hidden_layers") or 0
    heads = model.get("num_attention_heads") or 1
    groups = model.get("num_key_value_heads") or heads
    head = model.get("head_dim") or hidden // heads
    attention = 2 * hidden * head * (heads + groups)
    mlp = 3 * hidden * (model.get("intermediate_size") or 0)
    embeddings = (model.get("vocab_size") or 0) * hidden * (1 if model.get("tie_word_embeddings") else 2)
    return layers * (attention + mlp) + embeddings


def _check_positions(length: int, positions: int, folder: Path) -> None:
    if length > positions:
        raise ConfigError(f"ENGINE_MAX_LEN={length}: the model in {folder} has {positions} positions")
