"""ANSWER_CKPT in slime and vime: a frozen chat model that the host serves beside the policy.

Hosts serve several models from one file, ``--sglang-config`` or ``--vllm-config``, each behind a router of its own; a
model with ``update_weights: false`` keeps its weights. The policy stands first, since hosts take the first router for
their own. Of 8 GPUs that sample, ANSWER_GPUS=2 ANSWER_ENGINE_GPUS=2::

    policy   6 GPUs, engines of ENGINE_GPUS         answer   2 GPUs, one engine

``hooks.host`` finds the router of ``answer`` in what the host writes into its arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..config import Config, ConfigError
from ..hooks.answer_utility import answer_length
from ..hooks.host import ANSWERING
from .checkout import Checkout
from .layout import Layout

MODELS_FILE = "models.yaml"
"""Beside the run's other launch records."""
_FLAGS = {"slime": "--sglang-config", "vime": "--vllm-config"}
_KEYS = {"slime": "sglang", "vime": "vllm"}
_LENGTH = {"slime": "context_length", "vime": "max_model_len"}


def models_flag(checkout: Checkout, folder: Path) -> list[str]:
    return [_FLAGS[checkout.name], str(folder / MODELS_FILE)]


def models_yaml(config: Config, host: str, layout: Layout) -> str:
    """The file that names both models."""
    policy = _model("policy", config.hf_ckpt, layout.rollout_gpus - config.answer_gpus, layout.engine_gpus, True, {})
    length = {_LENGTH[host]: answer_length(config)}
    answer = _model(
        ANSWERING, config.answer_ckpt, config.answer_gpus, config.answer_engine_gpus, False, length)
    return yaml.safe_dump({_KEYS[host]: [policy, answer]}, sort_keys=False)


def _model(name: str, path: str, gpus: int, each: int, trained: bool, overrides: dict[str, Any]) -> dict[str, Any]:
    group = {"worker_type": "regular", "num_gpus": gpus, "num_gpus_per_engine": each}
    group |= {"overrides": overrides} if overrides else {}
    return {"name": name, "model_path": path, "update_weights": trained, "server_groups": [group]}


def check_gpus(config: Config, layout: Layout) -> None:
    """Raises ConfigError where the GPUs that sample cannot be divided between the two models."""
    if not config.serves_answers:
        return
    policy = layout.rollout_gpus - config.answer_gpus
    if config.answer_gpus % config.answer_engine_gpus:
        raise ConfigError(f"ANSWER_ENGINE_GPUS={config.answer_engine_gpus} does not divide ANSWER_GPUS="
                          f"{config.answer_gpus}")
    if policy < 1 or policy % layout.engine_gpus:
        raise ConfigError(
            f"ANSWER_GPUS={config.answer_gpus} leaves {max(policy, 0)} of {layout.rollout_gpus} GPUs that sample for "
            f"the policy, whose engines take {layout.engine_gpus}; choose another number, or set ANSWER_URL"
        )
