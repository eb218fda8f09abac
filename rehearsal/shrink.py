"""How a cluster's settings become a laptop's. The rule, in full:

1. No size grows, and what is small already stays as it is.
2. The model, if it has more than 20 million weights, becomes one of the same family with random weights: 2 layers,
   hidden 128, 4 heads, the user's own vocabulary. As such a model earns nothing, a coin is added to the reward (so
   groups are mixed and gradients are not zero), and LR is 1e-3 (so that weights move).
3. MEM_CHUNK_TOKENS, MEM_MAX_MEMORY and MEM_MAX_FINAL are halved together until a chunk has at most 128 tokens (no
   budget falls below 16), and questions have at most 128; documents are cut to 3 chunks, but not where model and
   chunks are small already. An agent that reads no document: until its reply has at most 128 tokens, questions 512.
4. Documents per rollout and trajectories per document are halved to even numbers, the larger first, until the logits
   of a rollout (rows x tokens x vocabulary) are at most 2e9; 2 x 2 remain. Steps per rollout stay as many, at most 2.
5. There is no warm-up: its first step moves nothing, and of two rollouts each should sample from other weights.
6. Of TP, PP and data parallelism the first that the cluster has above 1 is 2, on two trainer ranks; data parallelism
   is 4 where REHEARSE_RANKS allows it and a step divides. A micro-batch has the tokens of the longest row.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..agents import agent_class
from ..config import Config
from ..launch.layout import Layout
from ..launch.model_args import ModelSize, flag_values

_SMALL_MODEL = 20e6
_CHUNK, _LEAST_BUDGET, _QUESTION, _CHUNKS = 128, 16, 128, 3
_CONVERSATION = 512
"""Tokens of a question that is all there is to read, solved examples among it."""
_LOGITS = 2e9
_TEMPLATE = 160
"""Tokens of a turn beside section, memory and question, roughly."""
_TINY = {"--num-layers": 2, "--hidden-size": 128, "--ffn-hidden-size": 256, "--num-attention-heads": 4,
         "--num-query-groups": 2, "--kv-channels": 32}
"""Heads of 32: vLLM's attention on a CPU has kernels for multiples of 32 alone."""


@dataclass(frozen=True)
class Rehearsed:
    """The settings of a rehearsal."""

    config: Config
    random_model: bool
    """Whether weights are made up, by rule 2."""


def shrink(config: Config, size: ModelSize) -> Rehearsed:
    """Rules 2 to 5 on the settings of the cluster, whose layout is in ``config``."""
    random_model = size.parameters > _SMALL_MODEL
    budgets = _budgets(config, random_model)
    shrunk = replace(config, **budgets)
    if budgets:
        shrunk = replace(shrunk, engine_max_len=0)
    shrunk = replace(shrunk, **_batch(shrunk, size.vocab), lr_warmup_steps=0, lr_warmup_rollouts=0)
    if random_model:
        shrunk = replace(shrunk, **_coin(config), lr=1e-3)
    return Rehearsed(shrunk, random_model)


def _budgets(config: Config, random_model: bool) -> dict[str, Any]:
    """The token budgets that change, by rule 3."""
    halvings, reads = 0, agent_class(config).needs_document
    while (config.mem_chunk_tokens if reads else config.mem_max_final) >> halvings > _CHUNK:
        halvings += 1
    wanted = {
        name: min(getattr(config, name), max(getattr(config, name) >> halvings, _LEAST_BUDGET))
        for name in ("mem_chunk_tokens", "mem_max_memory", "mem_max_final")
    }
    wanted["mem_max_question"] = min(config.mem_max_question, _QUESTION if reads else _CONVERSATION)
    if halvings or random_model:
        wanted["mem_max_chunks"] = min(config.mem_max_chunks, _CHUNKS)
        wanted["eval_max_chunks"] = min(config.eval_max_chunks or _CHUNKS, _CHUNKS)
    return {name: value for name, value in wanted.items() if value != getattr(config, name)}


def _batch(config: Config, vocab: int) -> dict[str, Any]:
    """Documents, trajectories and steps of a rollout, by rule 4."""
    documents, samples = config.rollout_batch_size, config.n_samples_per_prompt

    while documents * samples * trajectory_tokens(config) * vocab > _LOGITS and (documents > 2 or samples > 2):
        if documents >= samples:
            documents = max(documents // 4 * 2, 2)
        else:
            samples = max(samples // 4 * 2, 2)
    if (documents, samples) == (config.rollout_batch_size, config.n_samples_per_prompt):
        return {}
    # Even numbers, so that two ranks share each step; one that was odd and not halved loses its last.
    documents, samples = (n if n == 1 else n // 2 * 2 for n in (documents, samples))
    steps = min(config.trajectories_per_rollout // config.step_trajectories, documents * samples // 2, 2)
    return {
        "rollout_batch_size": documents,
        "n_samples_per_prompt": samples,
        "global_batch_size": documents * samples // steps,
        "over_sampling_batch_size": min(config.over_sampling_batch_size, 2 * documents),
    }


def trajectory_tokens(config: Config) -> int:
    """Tokens of all rows of one trajectory, roughly."""
    if not agent_class(config).needs_document:
        return config.mem_max_question + config.mem_max_final + _TEMPLATE
    row = config.mem_chunk_tokens + 2 * config.mem_max_memory + _TEMPLATE
    return (min(config.mem_max_chunks, 2 * _CHUNKS) + 1) * row


def _coin(config: Config) -> dict[str, Any]:
    own = shlex.join([f"reward={config.reward}", f"settings={config.reward_args}"])
    return {"reward": "mem_agent.rehearsal.coin:Coin", "reward_args": own}


def shrink_layout(cluster: Layout, ranks: int, longest_row: int, step: int) -> Layout:
    """Rule 6 on the cluster's layout: one engine, no colocation.

    Args:
        ranks: trainer ranks at most. The tiny model divides by two alone: it has 2 layers and 2 key-value heads.
        longest_row: its tokens.
        step: trajectories of an optimizer step, which data-parallel ranks share evenly.
    """
    tp, pp = min(cluster.tp, ranks, 2), min(cluster.pp, ranks, 2)
    pp = pp if tp == 1 else 1
    alike = min(cluster.data_parallel, ranks) if tp == pp == 1 else 1
    dp = next(n for n in (4, 2, 1) if n <= alike and step % n == 0)
    return replace(
        cluster, tp=tp, pp=pp, cp=1, tokens_per_gpu=min(cluster.tokens_per_gpu, longest_row), engine_gpus=1,
        colocate=False, train_nodes=1, train_per_node=tp * pp * dp, rollout_gpus=1, gpus_per_node=tp * pp * dp + 1,
    )


def shrink_description(model: list[str]) -> list[str]:
    """Megatron's description of the random model: the family's, with rule 2's numbers in place of its own."""
    flags = flag_values(model)
    shrunk = list(model)
    for flag, value in _TINY.items():
        if flag in flags:
            shrunk[shrunk.index(flag) + 1] = str(value)
        else:
            shrunk += [flag, str(value)]
    return shrunk


def shrink_model(content: Mapping[str, Any]) -> dict[str, Any]:
    """``config.json`` of the random model."""
    numbers = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
               "num_key_value_heads": 2, "head_dim": 32}
    return {
        **content, **numbers, "dtype": "float32", "layer_types": None, "torch_dtype": None,
        "pad_token_id": None if content.get("pad_token_id") == -1 else content.get("pad_token_id"),  # -1: none
    }
