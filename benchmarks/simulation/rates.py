"""How fast hardware is, and what a model costs on it.

A model of N weights computes 2 N operations for a token forward and 4 N backward (Kaplan et al. 2020, section 2.1);
full recomputation adds another 2 N. Attention adds 4 * layers * width for each token and each token before it, three
times that with the backward pass. A step of an engine reads all weights (2 N bytes in bf16) and the keys and values of
every token that is looked at; computing and reading are added up, as if nothing overlapped.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from ...config import ConfigError
from ...launch.layout import Layout
from ...launch.model_args import ModelSize
from .engine import Limits, StepCosts

DEFAULT = Path(__file__).parent / "rates.yaml"
STEP_TOKENS, SEQUENCES = 8192, 256
"""Tokens and sequences of an engine step; vLLM's own defaults on large GPUs differ by version."""


@dataclass(frozen=True)
class Rates:
    """See ``rates.yaml`` for units and sources."""

    peak_flops: float
    memory_bandwidth: float
    memory_bytes: float
    gpus_per_node: float
    network_bandwidth: float
    prefill_utilization: float
    decode_bandwidth_share: float
    step_overhead_s: float
    turn_s: float
    train_utilization: float
    score_utilization: float
    network_share: float
    sync_fixed_s: float
    update_fixed_s: float


def read_rates(path: Path = DEFAULT) -> Rates:
    """The rates of a file, those that it leaves out from ``rates.yaml``.

    Raises:
        ConfigError: an unknown key, a value that is no positive number, or no source.
    """
    known = {f.name for f in fields(Rates)}
    values = {name: entry["value"] for name, entry in _entries(DEFAULT).items()}
    for name, entry in _entries(path).items():
        if name not in known:
            raise ConfigError(f"{path}: unknown rate {name!r}; known are {', '.join(sorted(known))}")
        if not isinstance(entry, dict) or set(entry) != {"value", "source"} or not str(entry["source"]).strip():
            raise ConfigError(f"{path}: {name} needs a value and a source, and nothing else")
        values[name] = entry["value"]
    return Rates(**{name: _positive(path, name, value) for name, value in values.items()})


def _entries(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file of rates; {DEFAULT.name} of this folder shows the form")
    try:
        content = yaml.safe_load(path.read_text())
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a mapping of rates to value and source is expected")
    return content


def _positive(path: Path, name: str, value: Any) -> float:
    try:
        number = float(value)  # YAML reads 1e12 as a text
    except (TypeError, ValueError):
        number = -1.0
    if not number > 0:
        raise ConfigError(f"{path}: {name}={value!r} is not a positive number")
    return number


# --- a model on it ------------------------------------------------------------------------------------------------


def key_value_bytes(model: ModelSize, head: int) -> int:
    """Of one token, in bf16."""
    return 2 * 2 * model.layers * model.kv_heads * head


def attention_flops(model: ModelSize) -> float:
    """Forward, for one token and one token before it."""
    return 4.0 * model.layers * model.hidden


def engine_costs(model: ModelSize, head: int, gpus: int, rates: Rates) -> StepCosts:
    flops = rates.peak_flops * rates.prefill_utilization * gpus
    read = rates.memory_bandwidth * rates.decode_bandwidth_share * gpus
    token = 2 * model.parameters / flops
    return StepCosts(
        step=rates.step_overhead_s + 2 * model.parameters / read,
        prompt_token=token,
        sequence=token,
        context_token=key_value_bytes(model, head) / read,
        pair=attention_flops(model) / flops,
    )


def engine_limits(model: ModelSize, head: int, layout: Layout, share: float, block: int, rates: Rates) -> Limits:
    """``share`` of a GPU's memory is the engine's; what its weights leave holds keys and values."""
    room = share * rates.memory_bytes * layout.engine_gpus - 2 * model.parameters
    blocks = int(room / (key_value_bytes(model, head) * block))
    return Limits(block, blocks, SEQUENCES, STEP_TOKENS)
