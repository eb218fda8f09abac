"""A Hugging Face model by folder or by hub id, and the settings of the agent that it was trained as.

``SAVE_PATH/mem_agent.yaml`` has all settings of a run. Of those a converted model gets what says how its agent reads
and answers, none that says where things are or how answers are sampled. A class of the user's (``AGENT=file.py:Name``)
stays where it is. They lie beside the weights::

    mem_agent.yaml            {mem_agent: {AGENT: gated, MEM_CHUNK_TOKENS: 1024, MEM_PROMPTS: mem_agent_prompts.yaml}}
    mem_agent_prompts.yaml    what MEM_PROMPTS of the run held, where it was set
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HTTPError

from ..agents import longest_turn
from ..agents.vocabulary import Vocabulary
from ..config import READING, SETTINGS_FILE, Config, ConfigError, read_yaml
from ..system.errors import reason_of
from ..system.text import one_line

AGENT_FIELDS = tuple(map(str.upper, READING))
"""What a model takes along."""
PROMPTS_FILE = "mem_agent_prompts.yaml"
TOKENIZER_FILES = ("tokeniz*", "vocab*", "merges*", "special_tokens*", "added_tokens*", "chat_template*", "*spiece*",
                   "sentencepiece*", "*.tiktoken")
_WEIGHTS = ["*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx"]
_HEAD = "# How this model was trained to read. Evaluation takes these settings where its environment has none.\n"
_REMEDY = "look at its code, and set TRUST_REMOTE_CODE=1 to run it"
HUB_ERRORS = (HTTPError, OSError, ValueError)
"""No connection, what the hub answers, a bad name, and a token that no header can hold."""
_UNLIMITED = 2**30
_STEP = 64
"""What an engine's context is rounded up to: a template that is a token longer, say by a host's own chat template
options, still fits."""


# --- the model -------------------------------------------------------------------------------------------------------


def local_folder(name: str, variable: str = "HF_CKPT", *, weights: bool = True) -> Path:
    """The folder of model ``name``, downloaded if it is a hub id: with or without weights.

    Raises:
        ConfigError: it is neither a model folder nor a hub id that can be loaded.
    """
    if not name:
        raise ConfigError(f"{variable} is not set; name a Hugging Face model folder or hub id")
    if (folder := Path(name)).is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{variable}={name!r}: the folder has no config.json; converted models are in its hf/*")
        return folder
    try:
        return Path(snapshot_download(name, ignore_patterns=None if weights else _WEIGHTS))
    except HUB_ERRORS as error:
        raise ConfigError(f"{variable}={name!r}: no folder, and the download failed: {reason_of(error)}") from None


def model_config(folder: Path, file: str = "config.json") -> dict[str, Any]:
    """The ``config.json`` of the model in ``folder``."""
    content: dict[str, Any] = json.loads((folder / file).read_bytes())
    return content


def refuse_foreign_code(folder: Path, trusted: bool) -> None:
    """Raises ConfigError where the model's files name Python of its own (``auto_map``) that is not ``trusted``: slime,
    vime and their engines run it without being asked.
    """
    for file in () if trusted else sorted(folder.glob("*config.json")):
        if model_config(folder, file.name).get("auto_map"):
            raise ConfigError(f"{file} names Python that comes with the model (auto_map); {_REMEDY}")


def load_vocabulary(folder: Path | str, trusted: bool = False) -> Vocabulary:
    """The tokenizer of the model in ``folder``; ``trusted``: also one that is Python of its own (TRUST_REMOTE_CODE).

    Raises:
        ConfigError: it has none, or none that can be used.
    """
    try:
        return Vocabulary(_tokenizer_class(Path(folder)).from_pretrained(
            folder, local_files_only=not trusted, trust_remote_code=trusted))
    except Exception as error:  # for a damaged file every tokenizer class has errors of its own, KeyError among them
        remedy = _REMEDY if "trust_remote_code" in str(error) else "the folder needs the model's tokenizer.json"
        raise ConfigError(f"the tokenizer of {folder} cannot be used ({reason_of(error)}); {remedy}") from error


_NAMED_TOKENIZERS = {
    ("qwen2", "Qwen2Tokenizer"), ("qwen3", "Qwen2Tokenizer"), ("qwen3", "PreTrainedTokenizerFast"),
    ("qwen3", "TokenizersBackend"), ("llama", "PreTrainedTokenizerFast"), ("llama", "TokenizersBackend"),
}
"""Model types and tokenizer classes of which AutoTokenizer takes the class that ``tokenizer_config.json`` names."""


def _tokenizer_class(folder: Path) -> Any:
    """What AutoTokenizer would choose, where that is known without it: it imports torch, some 14 seconds of a CPU."""
    import transformers

    files = [folder / "config.json", folder / "tokenizer_config.json"]
    if not all(file.is_file() for file in files):
        return transformers.AutoTokenizer
    model, named = (json.loads(file.read_bytes()) for file in files)
    known = (model.get("model_type"), named.get("tokenizer_class")) in _NAMED_TOKENIZERS and "auto_map" not in named
    return getattr(transformers, named["tokenizer_class"] if known else "AutoTokenizer")


def tokenizer_hash(folder: Path) -> str:
    """Of all that ``load_vocabulary`` reads of a model's folder: vocabulary, special tokens and chat template."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in TOKENIZER_FILES for file in folder.glob(pattern) if file.is_file()):
        digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


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


# --- settings of its agent -------------------------------------------------------------------------------------------


def left_settings(folder: str | Path) -> dict[str, Any]:
    """The settings that are left in the folder of a run or a model, by variable; none where there is no such file.

    Raises:
        ConfigError: the file is damaged.
    """
    file = Path(folder) / SETTINGS_FILE
    return read_yaml(file) if file.is_file() else {}


def settings_of_run(run: Path) -> dict[str, bytes]:
    """Files for a model that was trained in ``run``, by name; none where the run has left no settings."""
    settings = {name: value for name, value in left_settings(run).items() if name in AGENT_FIELDS}
    files: dict[str, bytes] = {}
    if settings.get("MEM_PROMPTS"):
        files[PROMPTS_FILE], settings["MEM_PROMPTS"] = Path(settings["MEM_PROMPTS"]).read_bytes(), PROMPTS_FILE
    text = _HEAD + yaml.safe_dump({"mem_agent": settings}, sort_keys=False)
    return files | {SETTINGS_FILE: text.encode()} if settings else {}


def model_settings(folder: Path) -> dict[str, Any]:
    """The settings of its agent beside the weights in ``folder``, by variable; none where it has no such file.

    Raises:
        ConfigError: the file is damaged or a setting is bad.
    """
    settings = {name: value for name, value in left_settings(folder).items() if name in AGENT_FIELDS}
    if settings.get("MEM_PROMPTS"):
        settings["MEM_PROMPTS"] = os.path.realpath(folder / settings["MEM_PROMPTS"])
    valid = Config.from_mapping(settings).to_mapping()
    return {name: valid[name] for name in settings}


def unlike_settings(folder: Path, config: Config) -> str:
    """``MEM_CHUNK_TOKENS=5000 (made with 32), ...``: the settings that the model in ``folder`` was made with, where
    ``config`` has others. Prompts are compared by what their files hold."""
    def shown(name: str, value: Any) -> Any:
        return Path(value).read_text(encoding="utf-8") if name == "MEM_PROMPTS" and value else value

    own, ours = model_settings(folder), config.to_mapping()
    return ", ".join(f"{name}={ours[name]!r} (made with {value!r})" for name, value in own.items()
                     if shown(name, ours[name]) != shown(name, value))


def config_for_model(folder: Path, env: Mapping[str, str] = os.environ) -> tuple[Config, str]:
    """The settings of ``env``, and where it says nothing those of the model in ``folder``; with a line for people that
    tells which came from there, empty for none.

    Raises:
        ConfigError: a setting is bad.
    """
    own, file = model_settings(folder), folder / SETTINGS_FILE
    config = Config.from_env(env, defaults=own)
    for name in ("AGENT", "TASK"):
        if ":" in str(own.get(name)) and not env.get(name) and not config.trust_remote_code:
            raise ConfigError(f"{file}: {name}={own[name]!r} names custom Python code; {_REMEDY}, or set {name}")
    default = Config().to_mapping()
    taken = {name: value for name, value in own.items() if not env.get(name) and value != default[name]}
    return config, one_line(" ".join([f"settings from {file}:", *shell_words(taken)])) if taken else ""


def model_to_ask(name: str, variable: str, **settings: Any) -> tuple[Path, Config]:
    """The folder of model ``name``, which ``variable`` gives, and the settings under which it is asked: ``settings``,
    then the environment's, then its own. Without BASE_URL engines are started for it, whose context is then settled.

    Raises:
        ConfigError: a setting is bad, there is no such model, or it cannot hold what the settings ask for.
    """
    Config.from_env()  # bad settings end it before a model is downloaded
    folder = local_folder(name, variable)
    config, from_model = config_for_model(folder)
    if from_model:
        logging.getLogger(__name__).info(from_model)
    config = config.replace(**settings)
    if not config.base_url:
        vocabulary = load_vocabulary(folder, config.trust_remote_code)
        config = with_engine_length(config, folder, vocabulary, config.eval_mode)
    return folder, config


def shell_words(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name}={shlex.quote(str(value))}" for name, value in settings.items()]


# --- the context of its engine ---------------------------------------------------------------------------------------


def with_engine_length(config: Config, folder: Path, vocabulary: Vocabulary, mode: str = "recurrent") -> Config:
    """The config with its engine context settled for the model in ``folder``, which is asked in ``mode`` alone.

    ENGINE_MAX_LEN=0 becomes the agent's longest turn, rounded up as far as the model's positions go. The one prompt of
    ``direct`` and ``rag`` is cut to the engine, so that any engine will do; for ``direct`` 0 becomes all positions.

    Raises:
        ConfigError: the longest turn does not fit the engine, or the engine not the model; the line names what makes
            the turn shorter.
    """
    longest, positions = longest_turn(config, vocabulary), model_positions(folder) or _UNLIMITED
    wanted = positions if mode == "direct" else -(-longest // _STEP) * _STEP
    length, least = config.engine_max_len or min(wanted, positions), longest if mode == "recurrent" else 1
    if not least <= length <= positions:
        prompts = f" or the texts in MEM_PROMPTS={config.mem_prompts}" if config.mem_prompts else ""
        raise ConfigError(
            f"the longest turn of AGENT={config.agent} has {longest} tokens with its reply, the engine holds {length} "
            f"(ENGINE_MAX_LEN={config.engine_max_len}), the model in {folder} {positions}; set ENGINE_MAX_LEN in "
            f"between, or lower MEM_CHUNK_TOKENS={config.mem_chunk_tokens}, MEM_MAX_MEMORY={config.mem_max_memory}, "
            f"MEM_MAX_FINAL={config.mem_max_final}{prompts}"
        )
    return config.replace(engine_max_len=length)
