"""Megatron's description of a model, taken from the host's own ``scripts/models/<family>.sh``.

Where none fits a known kind of dense decoder (Qwen2.5-14B has none in either host), it is made from ``config.json``; a
test holds such descriptions to the hosts' scripts.

A family fits a Hugging Face folder when every number that decides tensor shapes and numerics agrees. The rotary base
alone is given to Megatron from ``config.json``, after the script's own: fine-tuned variants differ in nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import ConfigError

logger = logging.getLogger(__name__)

_SAME = {
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
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"HF_CKPT={str(folder)!r}: config.json cannot be read: {error}") from None
    content = content.get("text_config", content)
    content.setdefault("rope_theta", (content.get("rope_parameters") or {}).get("rope_theta", 10000.0))
    if missing := [key for key in _NEEDED if not content.get(key)]:
        raise ConfigError(f"{path}: has no {missing[0]}; only dense decoders with rotary positions are known")
    return content


_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "rope_theta")


def model_size(content: Mapping[str, Any]) -> ModelSize:
    """Sizes of a dense decoder from its ``config.json``."""
    hidden, layers, heads = (content[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    kv_heads = content.get("num_key_value_heads") or heads
    head_dim = content.get("head_dim") or hidden // heads
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    mlp = 3 * hidden * content["intermediate_size"]
    embeddings = content["vocab_size"] * hidden * (1 if content.get("tie_word_embeddings") else 2)
    return ModelSize(
        parameters=layers * (attention + mlp) + embeddings,
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, vocab=content["vocab_size"],
    )


def model_args(scripts: Path, family: str, content: Mapping[str, Any]) -> tuple[str, list[str]]:
    """(family, its MODEL_ARGS) for a model: the named family, checked, or the one that fits, or "" and our own.

    Raises:
        ConfigError: the family does not exist or does not describe this model, or several do, or none and we cannot.
    """
    if not scripts.is_dir():
        raise ConfigError(f"{scripts}: no such folder; HOST_ROOT must be a full checkout of the host")
    names = sorted(p.stem for p in scripts.glob("*.sh"))
    if family and family not in names:
        raise ConfigError(f"MODEL_FAMILY={family!r}: no {scripts}/{family}.sh; there are {', '.join(names)}")
    if family:
        found = _read_script(scripts / f"{family}.sh")
        wrong = _differences(found, content)
        if wrong:
            raise ConfigError(f"MODEL_FAMILY={family!r} does not describe HF_CKPT: {wrong[0]}")
        return family, _with_rotary_base(found, content)
    read = {name: _read_script(scripts / f"{name}.sh") for name in names}
    fitting = {name: found for name, found in read.items() if not _differences(found, content)}
    exact = {name: found for name, found in fitting.items() if _same_rotary_base(found, content)} or fitting
    if not exact and _is_known(content):
        logger.warning("no script of %s fits HF_CKPT: Megatron's description is made from its config.json", scripts)
        return "", describe(content)
    if len({tuple(found) for found in exact.values()}) != 1:
        what = f"several fit: {', '.join(exact)}" if exact else f"none of {', '.join(names)} fits"
        raise ConfigError(f"MODEL_FAMILY is not set, and for HF_CKPT {what}; set MODEL_FAMILY")
    name, found = next(iter(exact.items()))
    return name, _with_rotary_base(found, content)


_OF_KIND = {"qwen3": ["--qk-layernorm"], "qwen2": ["--add-qkv-bias"], "llama": []}
"""What sets the known dense decoders apart in Megatron, by ``model_type``."""


def describe(content: Mapping[str, Any]) -> list[str]:
    """Megatron's description of a model that no script of the host is for, from its ``config.json`` alone.

    Raises:
        ConfigError: it is of another kind, or scales its rotary positions.
    """
    kind, rope = str(content.get("model_type")), _rope_scaling(content)
    if not _is_known(content):
        raise ConfigError(f"a model of type {kind!r} with {rope} rotary positions cannot be described to Megatron; "
                          f"known are {', '.join(_OF_KIND)} with default ones; set MODEL_FAMILY")
    heads = content["num_attention_heads"]
    numbers = {
        flag: content.get(key) or {"num_key_value_heads": heads, "head_dim": content["hidden_size"] // heads,
                                   "rms_norm_eps": 1e-6}[key]
        for flag, key in _SAME.items()
    }
    found = ["--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear", "--group-query-attention",
             "--normalization", "RMSNorm", *_OF_KIND[kind]]
    found += [str(item) for pair in numbers.items() for item in pair]
    if not content.get("tie_word_embeddings"):
        found += ["--untie-embeddings-and-output-weights"]
    return _with_rotary_base([*found, "--rotary-base", "10000"], content)


def _is_known(content: Mapping[str, Any]) -> bool:
    return str(content.get("model_type")) in _OF_KIND and _rope_scaling(content) == "default"


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
        raise ConfigError(f"config.json has rope_theta={base}; Megatron's --rotary-base takes whole numbers")
    return [*found, "--rotary-base", str(int(base))]


def _read_script(script: Path) -> list[str]:
    """MODEL_ARGS as bash expands them."""
    read = 'source "$1" >&2 && [ "${#MODEL_ARGS[@]}" -gt 0 ] && printf "%s\\0" "${MODEL_ARGS[@]}"'
    done = subprocess.run(
        ["bash", "-c", read, "bash", str(script)],
        env={"PATH": os.environ["PATH"]},
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )
    values = done.stdout.split("\0")[:-1]
    if done.returncode or not values:
        reason = " ".join(done.stderr.split())[-200:] or "it sets no MODEL_ARGS"
        raise ConfigError(f"{script}: MODEL_ARGS cannot be read: {reason}")
    return values


def _differences(found: Sequence[str], content: Mapping[str, Any]) -> list[str]:
    """One line for each number of the script that is not the model's."""
    flags = flag_values(found)
    heads = content["num_attention_heads"]
    defaults = {"--num-query-groups": heads, "--kv-channels": content["hidden_size"] // heads}
    lines = ["it is a mixture of experts"] if "--num-experts" in flags else []
    for flag, key in _SAME.items():
        wanted = content.get(key) or defaults.get(flag)
        given = flags.get(flag) or defaults.get(flag)
        if flag == "--vocab-size" and given is None:
            continue  # Megatron then takes it from the tokenizer
        if given is None or wanted is None or float(given) != float(wanted):
            lines.append(f"{flag} {given} there, {key} {wanted} in config.json")
    kind_of_rope = _rope_scaling(content)
    if kind_of_rope != "default" and "--use-rope-scaling" not in flags:
        lines.append(f"plain rotary positions there, {kind_of_rope} scaling in config.json")
    tied = "--untie-embeddings-and-output-weights" not in flags
    if tied != bool(content.get("tie_word_embeddings", False)):
        lines.append(f"tied embeddings {tied} there, {not tied} in config.json")
    kind = content.get("model_type")
    for flag, model_type in (("--qk-layernorm", "qwen3"), ("--add-qkv-bias", "qwen2")):
        if (flag in flags) != (kind == model_type):
            lines.append(f"{flag} {'set' if flag in flags else 'not set'} there, model_type {kind} in config.json")
    return lines


def flag_values(found: Sequence[str]) -> dict[str, str]:
    """``--flag value`` pairs; several values are joined by a blank, none is the empty string."""
    flags: dict[str, list[str]] = {}
    name = ""
    for item in found:
        if item.startswith("--"):
            name = item
            flags[name] = []
        elif name:
            flags[name].append(item)
    return {flag: " ".join(values) for flag, values in flags.items()}
