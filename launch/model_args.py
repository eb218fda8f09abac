"""Megatron's description of a model, from its ``config.json``; a test holds it to the hosts' own scripts.

The numbers decide tensor shapes and numerics (``CONFIG_KEYS``), and a few switches set the dense decoders apart that
the pack can convert (``_OF_KIND``). slime and vime keep such a list for each size of each model in
``scripts/models/<family>.sh``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..checkpoints.hf_model import model_config
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
_DENSE = ["--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear", "--group-query-attention",
          "--normalization", "RMSNorm"]

SCALED = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What ``--use-rope-scaling`` means: slime (624b824, ``model_provider.py``) gives GPTModel this flag and no number;
these are the defaults of Megatron's ``RotaryEmbedding``."""


def read_model_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a dense decoder, with the rotary base where older versions kept it, and its key-value heads.

    Raises:
        ConfigError: it cannot be read, or is of another kind of model.
    """
    content = model_config(folder)
    if content.get("model_type") not in _OF_KIND:
        raise ConfigError(f"HF_CKPT={str(folder)!r}: config.json has model_type={content.get('model_type')!r}; models "
                          f"of these can be trained: {', '.join(_OF_KIND)}")
    base = content.get("rope_theta") or (content.get("rope_parameters") or {}).get("rope_theta", 10000)
    kv_heads = content.get("num_key_value_heads") or content["num_attention_heads"]
    return content | {"rope_theta": base, "num_key_value_heads": kv_heads}


def describe(content: Mapping[str, Any]) -> list[str]:
    """Megatron's flags for a model.

    Raises:
        ConfigError: its rotary positions are scaled, and not as ``--use-rope-scaling`` does.
    """
    rotary, base = content.get("rope_scaling") or content.get("rope_parameters") or {}, content["rope_theta"]
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    told = {name: rotary.get(name) for name in SCALED}
    if kind not in ("default", "llama3") or (kind == "llama3" and told != SCALED):
        raise ConfigError(f"HF_CKPT: config.json scales rotary positions ({kind}, {told}); slime and vime tell "
                          f"Megatron's model no numbers, so it can have none or Llama 3.1's ({SCALED}); HOST=local "
                          "trains any llama3")
    # What transformers takes where config.json has none.
    default = {"head_dim": content["hidden_size"] // content["num_attention_heads"], "rms_norm_eps": 1e-6}
    numbers = {flag: content.get(key) or default[key] for flag, key in CONFIG_KEYS.items()} | {
        "--rotary-base": str(base).removesuffix(".0")}
    untied = [] if content.get("tie_word_embeddings") else ["--untie-embeddings-and-output-weights"]
    scaled = ["--use-rope-scaling"] if kind == "llama3" else []
    return [*_DENSE, *_OF_KIND[content["model_type"]], *untied,
            *(str(item) for pair in numbers.items() for item in pair), *scaled]


def flag_values(found: Sequence[str]) -> dict[str, str]:
    """``--flag value`` pairs; several values are joined by a blank, none is the empty string."""
    flags: dict[str, list[str]] = {}
    for item in found:
        if item.startswith("--"):
            flags[item] = values = []
        elif flags:
            values.append(item)
    return {flag: " ".join(values) for flag, values in flags.items()}
