"""Dividing a model over GPUs: tensor parallelism, GPUs per engine and tokens per micro-batch, from sizes and memory.

The estimate, per training GPU, in bytes (bf16 weights, fp32 gradients, Adam states spread by the distributed
optimizer, full recomputation, sequence parallelism)::

    held       = parameters * (2 + 4) / (tp * pp)  +  parameters * 12 / gpus
    per token  = logits * vocab / tp                12 in slime, 22 in vime, 4 more if TEMPERATURE is not 1
               + 2 * hidden * layers / (tp * pp)    one saved activation per layer
               + 34 * 2 * hidden / tp               one layer recomputed (Korthikanti et al. 2022, equation 2)

``held`` may take half of a GPU's memory, weights and tokens together 85 %. The smallest tp that holds the longest row
wins. What the user gives is kept as it is: TP, MAX_TOKENS_PER_GPU, and the flags of HOST_ARGS that ``divide`` reads,
pipeline (pp) and context parallelism (cp) among them, which are 1 otherwise.

Example: 7.6e9 parameters on 8 GPUs of 80 GiB, rows of 8,600 tokens: held is 57 GB at tp 1 and 34 GB at tp 2, so tp=2;
an engine needs one GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..checkpoints.hf_model import parameter_count
from ..config import Config, ConfigError
from ..system.plugins import shell_words

Model = Mapping[str, Any]
"""Its ``config.json``, as ``read_model_config`` gives it."""

GIB = 2**30
ENGINE_MEMORY = 0.7
"""Share of a GPU's memory that an engine takes, unless HOST_ARGS says otherwise."""
_MOST_ROWS = 4
"""Rows of full length in one micro-batch; more would only take memory."""


@dataclass(frozen=True)
class Layout:
    """How GPUs are used: ``train_nodes`` x ``train_per_node`` GPUs train, ``rollout_gpus`` sample."""

    tp: int
    pp: int
    cp: int
    tokens_per_gpu: int
    engine_gpus: int
    colocate: bool
    train_nodes: int
    train_per_node: int
    rollout_gpus: int
    gpus_per_node: int

    @property
    def train_gpus(self) -> int:
        return self.train_nodes * self.train_per_node

    @property
    def data_parallel(self) -> int:
        return self.train_gpus // (self.tp * self.pp * self.cp)


def divide(config: Config) -> tuple[argparse.Namespace, list[str]]:
    """What HOST_ARGS says of how GPUs are divided (GPUs: 0 if nothing), and its other flags::

        HOST_ARGS="--context-parallel-size 2 --lr 5e-6"    cp=2, and --lr 5e-6 reaches the host as it is

    A flag without its number ends the process with a line that names it.
    """
    parser = argparse.ArgumentParser(prog="HOST_ARGS", add_help=False, allow_abbrev=False)
    parser.add_argument("--pipeline-model-parallel-size", dest="pp", type=int, default=1)
    parser.add_argument("--context-parallel-size", dest="cp", type=int, default=1)
    parser.add_argument("--rollout-num-gpus-per-engine", dest="engine_gpus", type=int, default=0)
    parser.add_argument("--rollout-num-gpus", dest="rollout_gpus", type=int, default=0)
    parser.add_argument("--sglang-mem-fraction-static", "--vllm-gpu-memory-utilization", dest="engine_memory",
                        type=float, default=ENGINE_MEMORY)
    return parser.parse_known_args(shell_words("HOST_ARGS", config.host_args))


def derive_layout(model: Model, per_node: int, memory: float, longest_row: int, config: Config) -> Layout:
    """The layout of NUM_NODES machines with ``per_node`` GPUs of ``memory`` bytes, for rows of up to ``longest_row``
    tokens.

    Raises:
        ConfigError: the given sizes do not divide, or nothing fits; the message says what would.
    """
    given, _ = divide(config)
    total = config.num_nodes * per_node
    training, rollout = total, 0 if config.supervised else total
    if config.fully_async:  # each its own; else all GPUs do both in turn
        rollout = given.rollout_gpus or total // 2
        training = total - rollout
        if not rollout or training < 1 or (training > per_node and training % per_node):
            raise ConfigError(f"FULLY_ASYNC=1: {rollout} of {total} GPUs would sample and {max(training, 0)} train; "
                              f"it needs one of each, and for training up to {per_node} or a multiple of that; set "
                              "--rollout-num-gpus in HOST_ARGS, or use more GPUs")
    tp, tokens = _tp_and_tokens(model, training, per_node, memory, longest_row, given, config)
    engine = given.engine_gpus or (_engine_gpus(model, per_node, given.engine_memory * memory) if rollout else 1)
    nodes = max(training // per_node, 1)
    colocate = rollout > 0 and not config.fully_async
    return Layout(tp, given.pp, given.cp, tokens, engine, colocate, nodes, training // nodes, rollout, per_node)


def _tp_and_tokens(
    model: Model, training: int, per_node: int, memory: float, longest_row: int, given: argparse.Namespace,
    config: Config,
) -> tuple[int, int]:
    """(tensor parallel size, tokens per GPU): the smallest that hold the longest row, or what is given."""
    # Peak bytes, measured on the hosts' own loss functions (slime 624b824, vime 0747f8e, which clones).
    logit = (22 if config.host == "vime" else 12) + (4 if config.temperature != 1 else 0)
    row, parameters = -(-longest_row // given.cp), parameter_count(model)
    for tp in [config.tp] if config.tp else _powers(per_node):
        if training % (tp * given.pp * given.cp) or not _splits_heads(model, tp):
            continue
        if config.tp and config.max_tokens_per_gpu:
            return tp, config.max_tokens_per_gpu  # the user knows better than the estimate
        held = parameters * (6 / (tp * given.pp) + 12 / training)
        hidden = model["hidden_size"]
        saved = 2 * hidden * model["num_hidden_layers"] / (tp * given.pp)
        tokens = int((0.85 * memory - held) / (logit * model["vocab_size"] / tp + saved + 68 * hidden / tp))
        if held <= 0.5 * memory and tokens >= row:
            return tp, config.max_tokens_per_gpu or min(tokens, _MOST_ROWS * row)
    raise ConfigError(
        f"{parameters / 1e9:.1f}e9 parameters, {model['num_attention_heads']} heads and rows of {longest_row} tokens "
        f"do not fit {training} training GPUs of {memory / GIB:.0f} GiB (TP={config.tp or 'any'}); lower "
        "MEM_CHUNK_TOKENS, use more GPUs, give --context-parallel-size or --pipeline-model-parallel-size in "
        "HOST_ARGS, or overrule this estimate with both TP and MAX_TOKENS_PER_GPU")


def _engine_gpus(model: Model, per_node: int, memory: float) -> int:
    """The fewest GPUs whose engine share holds the bf16 weights twice over: the other half is for the KV cache. All of
    a machine, if none do.
    """
    sizes = [n for n in _powers(per_node) if _splits_heads(model, n) and 4 * parameter_count(model) / n <= memory]
    return min(sizes, default=per_node)


def _splits_heads(model: Model, n: int) -> bool:
    """Query heads divide, and key-value heads divide or repeat evenly."""
    heads, kv_heads = model["num_attention_heads"], model["num_key_value_heads"]
    return heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)


def _powers(limit: int) -> list[int]:
    """The powers of two up to ``limit``."""
    return [2**i for i in range(limit.bit_length())]
