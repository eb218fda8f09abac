"""Megatron's description of a model, taken from the host's own ``scripts/models/<family>.sh``.

A family fits a Hugging Face folder when every number that decides tensor shapes and numerics agrees. The rotary base
alone is given to Megatron from ``config.json``, after the script's own: fine-tuned variants differ in nothing else.
Where none fits (Qwen2.5-14B has none in either host), or several that differ, the description of a known kind of dense
decoder is made from ``config.json``; a test holds such descriptions to the hosts' scripts.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checkpoints.hf_model import model_config, parameter_count
from ..config import ConfigError

CONFIG_KEYS = {
    # Megatron flag -> config.json key
    "--num-layers": "num_hidden_layers",
    "--hidden-size": "hidden_size",
    "--ffn-hidden-size": "intermediate_size",
    "--num-attention-heads": "num_attention_heads",
    "--num-query-groups": "num_key_value_heads",
    "--vocab-size": "vocab_size",
    "--kv-channels": "head_dim",
    "--norm-epsilon": "rms_norm_eps",
}
_OF_KIND = {"qwen3": ["--qk-layernorm"], "qwen2": ["--add-qkv-bias"], "llama": []}
"""What sets the known dense decoders apart in Megatron, by ``model_type``."""
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "rope_theta")


@dataclass(frozen=True)
class ModelSize:
    """What dividing a model over GPUs needs to know."""

    parameters: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int


def read_model_config(folder: Path) -> dict[str, Any]:
    """``config.json``, with the rotary base where older versions kept it.

    Raises:
        ConfigError: it cannot be read or describes no dense decoder with rotary positions.
    """
    content = model_config(folder)
    content = content.get("text_config", content)
    content.setdefault("rope_theta", (content.get("rope_parameters") or {}).get("rope_theta", 10000.0))
    if missing := [key for key in _NEEDED if not content.get(key)]:
        raise ConfigError(f"HF_CKPT={str(folder)!r}: config.json has no {missing[0]}; use a dense decoder with rotary "
                          "positions")
    return content


def model_size(content: Mapping[str, Any]) -> ModelSize:
    """Sizes of a dense decoder from its ``config.json``."""
    heads = content["num_attention_heads"]
    return ModelSize(
        parameter_count(content), content["num_hidden_layers"], content["hidden_size"], heads,
        content.get("num_key_value_heads") or heads, content["vocab_size"],
    )


def model_args(scripts: Path, content: Mapping[str, Any]) -> tuple[str, list[str]]:
    """(family, its MODEL_ARGS) for a model: those of the script that fits, else ("", those of its config.json).

    Raises:
        ConfigError: no script fits, or several that differ, and it is no dense decoder of a known kind.
    """
    read = {script.stem: _read_script(script) for script in sorted(scripts.glob("*.sh"))}
    fitting = {name: found for name, found in read.items() if found and _fits(found, content)}
    exact = {name: found for name, found in fitting.items() if _same_rotary_base(found, content)} or fitting
    if len({tuple(found) for found in exact.values()}) == 1:
        name, found = next(iter(exact.items()))
        return name, _with_rotary_base(found, content)
    return "", describe(content)


def describe(content: Mapping[str, Any]) -> list[str]:
    """Megatron's description of a dense decoder from its ``config.json`` alone. Raises ConfigError for other kinds."""
    kind, rope = str(content.get("model_type")), _rope_scaling(content)
    if kind not in _OF_KIND or rope != "default":
        raise ConfigError(f"HF_CKPT: no one script of the host fits a model of type {kind!r} with {rope} rotary "
                          f"positions; without a script {', '.join(_OF_KIND)} with default ones can be trained")
    found = ["--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear", "--group-query-attention",
             "--normalization", "RMSNorm", *_OF_KIND[kind]]
    found += [str(item) for pair in _numbers(content).items() for item in pair]
    if not content.get("tie_word_embeddings"):
        found += ["--untie-embeddings-and-output-weights"]
    return _with_rotary_base([*found, "--rotary-base", "10000"], content)


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """The value of each flag in CONFIG_KEYS; where config.json has none, that of transformers."""
    heads = content["num_attention_heads"]
    default = {"num_key_value_heads": heads, "head_dim": content["hidden_size"] // heads, "rms_norm_eps": 1e-6}
    return {flag: content.get(key) or default[key] for flag, key in CONFIG_KEYS.items()}


def _rope_scaling(content: Mapping[str, Any]) -> str:
    rope = content.get("rope_scaling") or content.get("rope_parameters") or {}
    return rope.get("rope_type", rope.get("type", "default"))


def _same_rotary_base(found: Sequence[str], content: Mapping[str, Any]) -> bool:
    return float(flag_values(found).get("--rotary-base", 10000)) == float(content["rope_theta"])


def _with_rotary_base(found: list[str], content: Mapping[str, Any]) -> list[str]:
    if _same_rotary_base(found, content):
        return found
    base = content["rope_theta"]
    if base != int(base):
        raise ConfigError(f"HF_CKPT: config.json has rope_theta={base}; Megatron's --rotary-base takes whole numbers")
    return [*found, "--rotary-base", str(int(base))]


def _read_script(script: Path) -> list[str]:
    """MODEL_ARGS as bash expands them; nothing where it sets none."""
    read = 'source "$1" >&2 && printf "%s\\0" "${MODEL_ARGS[@]}"'
    done = subprocess.run(["bash", "-c", read, "bash", str(script)], env={"PATH": os.environ["PATH"]},
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return [] if done.returncode else done.stdout.split("\0")[:-1]


def _fits(found: Sequence[str], content: Mapping[str, Any]) -> bool:
    """Whether every number of the script is the model's."""
    flags, heads = flag_values(found), content["num_attention_heads"]
    # What Megatron takes where a script has no such flag.
    default = {"--num-query-groups": heads, "--kv-channels": content["hidden_size"] // heads,
               "--vocab-size": content["vocab_size"]}
    numbers = {flag: float(flags.get(flag) or default.get(flag, "nan")) for flag in CONFIG_KEYS}
    kinds = {flag for of_kind in _OF_KIND.values() for flag in of_kind}
    return (
        numbers == {flag: float(number) for flag, number in _numbers(content).items()}
        and "--num-experts" not in flags
        and (_rope_scaling(content) == "default" or "--use-rope-scaling" in flags)
        and ("--untie-embeddings-and-output-weights" in flags) != bool(content.get("tie_word_embeddings"))
        and kinds & flags.keys() == set(_OF_KIND.get(str(content.get("model_type")), ()))
    )


def flag_values(found: Sequence[str]) -> dict[str, str]:
    """``--flag value`` pairs; several values are joined by a blank, none is the empty string."""
    flags: dict[str, list[str]] = {}
    for item in found:
        if item.startswith("--"):
            flags[item] = values = []
        elif flags:
            values.append(item)
    return {flag: " ".join(values) for flag, values in flags.items()}
