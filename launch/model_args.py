"""Megatron's description of a model: that of the host's own ``scripts/models/<family>.sh``, or of its ``config.json``.

Both stand on the same facts: every number that decides tensor shapes and numerics (``_numbers``), and the switches
that set the known dense decoders apart (``_switches``). A script fits if it says the same; it may say more, such as
the factors of scaled rotary positions. The rotary base is that of ``config.json``, given behind the script's own
where they differ: fine-tuned variants differ in nothing else. Where no script fits (Qwen2.5-14B has none in either
host), or several that differ, a dense decoder of a known kind is described by those facts; a test holds such
descriptions to the hosts' scripts.
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
_OPTIONAL = ("--num-query-groups", "--kv-channels", "--vocab-size")
"""Where a script has none of these, Megatron takes what transformers does."""
_OF_KIND = {"qwen3": "--qk-layernorm", "qwen2": "--add-qkv-bias", "llama": ""}
"""What sets the known dense decoders apart in Megatron, by ``model_type``."""
_UNTIED, _SCALED = "--untie-embeddings-and-output-weights", "--use-rope-scaling"
_SWITCHES = {"--qk-layernorm", "--add-qkv-bias", _UNTIED, _SCALED, "--num-experts"}
_DENSE = ("--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear", "--group-query-attention",
          "--normalization", "RMSNorm")
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
    fitting = {name: _with_rotary_base(found, content) for name, found in read.items() if _fits(found, content)}
    if len({frozenset(flag_values(found).items()) for found in fitting.values()}) == 1:
        return min(fitting.items(), key=lambda pair: len(pair[1]))  # the one whose own rotary base is the model's
    return "", describe(content)


def describe(content: Mapping[str, Any]) -> list[str]:
    """Megatron's description of a dense decoder from its ``config.json`` alone. Raises ConfigError for other kinds."""
    kind, switches = content.get("model_type"), _switches(content)
    if kind not in _OF_KIND or _SCALED in switches:
        raise ConfigError(f"HF_CKPT: no one script of the host fits a model of type {kind!r} with its rotary "
                          f"positions; without a script {', '.join(_OF_KIND)} with default ones can be trained")
    numbers = [str(item) for pair in _numbers(content).items() for item in pair]
    return _with_rotary_base([*_DENSE, *sorted(switches), *numbers, "--rotary-base", "10000"], content)


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """The value of each flag in CONFIG_KEYS; where config.json has none, that of transformers."""
    heads = content["num_attention_heads"]
    default = {"num_key_value_heads": heads, "head_dim": content["hidden_size"] // heads, "rms_norm_eps": 1e-6}
    return {flag: content.get(key) or default[key] for flag, key in CONFIG_KEYS.items()}


def _switches(content: Mapping[str, Any]) -> set[str]:
    """Those of ``_SWITCHES`` that the model needs."""
    rope = content.get("rope_scaling") or content.get("rope_parameters") or {}
    needed = {
        _OF_KIND.get(str(content.get("model_type")), ""): True,
        _UNTIED: not content.get("tie_word_embeddings"),
        _SCALED: rope.get("rope_type", rope.get("type", "default")) != "default",
    }
    return {flag for flag, is_needed in needed.items() if flag and is_needed}


def _fits(found: Sequence[str], content: Mapping[str, Any]) -> bool:
    """Whether a script's numbers and switches are the model's."""
    flags = flag_values(found)
    derived = _numbers({**content, "num_key_value_heads": 0, "head_dim": 0})
    silent = {flag: str(derived[flag]) for flag in _OPTIONAL}
    numbers = {flag: float(flags.get(flag) or silent.get(flag, "nan")) for flag in CONFIG_KEYS}
    return numbers == _numbers(content) and _SWITCHES & flags.keys() == _switches(content)


def _with_rotary_base(found: list[str], content: Mapping[str, Any]) -> list[str]:
    base = content["rope_theta"]
    if float(flag_values(found).get("--rotary-base", 10000)) == float(base):
        return found
    if base != int(base):
        raise ConfigError(f"HF_CKPT: config.json has rope_theta={base}; Megatron's --rotary-base takes whole numbers")
    return [*found, "--rotary-base", str(int(base))]


def _read_script(script: Path) -> list[str]:
    """MODEL_ARGS as bash expands them; nothing where it sets none."""
    read = 'source "$1" >&2 && printf "%s\\0" "${MODEL_ARGS[@]}"'
    done = subprocess.run(["bash", "-c", read, "bash", str(script)], env={"PATH": os.environ["PATH"]},
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return [] if done.returncode else done.stdout.split("\0")[:-1]


def flag_values(found: Sequence[str]) -> dict[str, str]:
    """``--flag value`` pairs; several values are joined by a blank, none is the empty string."""
    flags: dict[str, list[str]] = {}
    for item in found:
        if item.startswith("--"):
            flags[item] = values = []
        elif flags:
            values.append(item)
    return {flag: " ".join(values) for flag, values in flags.items()}
