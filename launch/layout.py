"""Dividing a model over GPUs: parallel sizes, GPUs per engine and tokens per micro-batch, from sizes and memory alone.

The estimate, per training GPU, in bytes (bf16 weights, fp32 gradients, Adam states spread by the distributed
optimizer, full recomputation, sequence parallelism)::

    held       = parameters * (2 + 4) / (tp * pp)  +  parameters * 12 / gpus
    per token  = logits * vocab / tp                12 in slime, 22 in vime, 4 more if TEMPERATURE is not 1
               + 2 * hidden * layers / (tp * pp)    one saved activation per layer
               + 34 * 2 * hidden / tp               one layer recomputed (Korthikanti et al. 2022, equation 2)

``held`` may take half of a GPU's memory, weights and tokens together 85 %. The smallest sizes that hold the longest
row win, tensor parallelism first (it stays in one machine), then context, then pipeline parallelism. What the user
gives is kept as it is: TP, MAX_TOKENS_PER_GPU, and the flags of HOST_ARGS that ``divide`` reads.

Example: 7.6e9 parameters on 8 GPUs of 80 GiB, rows of 8,600 tokens: held is 57 GB at tp 1 and 34 GB at tp 2, so tp=2;
an engine needs one GPU.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ..config import Config, ConfigError
from ..system.plugins import shell_words
from .model_args import ModelSize

GIB = 2**30
ENGINE_MEMORY = 0.7
"""Share of a GPU's memory that an engine takes, unless HOST_ARGS says otherwise."""
_MOST_ROWS = 4
"""Rows of full length in one micro-batch; more would only take memory."""


@dataclass(frozen=True)
class Gpus:
    """All GPUs of a run: ``nodes`` machines with ``per_node`` GPUs of ``memory`` bytes."""

    nodes: int
    per_node: int
    memory: float

    @property
    def total(self) -> int:
        return self.nodes * self.per_node


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
    """What HOST_ARGS says of how GPUs are divided (0: nothing, it is derived), and its other flags::

        HOST_ARGS="--context-parallel-size 2 --lr 5e-6"    cp=2, and --lr 5e-6 reaches the host as it is

    Raises:
        ConfigError: a flag has no value, or one that is no number.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--pipeline-model-parallel-size", dest="pp", type=int, default=0)
    parser.add_argument("--context-parallel-size", dest="cp", type=int, default=0)
    parser.add_argument("--rollout-num-gpus-per-engine", dest="engine_gpus", type=int, default=0)
    parser.add_argument("--rollout-num-gpus", dest="rollout_gpus", type=int, default=0)
    parser.add_argument("--sglang-mem-fraction-static", "--vllm-gpu-memory-utilization", dest="engine_memory",
                        type=float, default=ENGINE_MEMORY)
    try:
        return parser.parse_known_args(shell_words("HOST_ARGS", config.host_args))
    except argparse.ArgumentError as error:
        raise ConfigError(f"HOST_ARGS={config.host_args!r}: {error}") from None


def derive_layout(model: ModelSize, gpus: Gpus, longest_row: int, config: Config) -> Layout:
    """The layout for rows of up to ``longest_row`` tokens.

    Raises:
        ConfigError: the given sizes do not divide, or nothing fits; the message says what would.
    """
    given, _ = divide(config)
    train, rollout_gpus = _split(gpus, given, config)
    tp, cp, pp, tokens = _train_sizes(model, train, longest_row, given, config)
    engine = given.engine_gpus or (_engine_gpus(model, gpus, given) if rollout_gpus else 1)
    if rollout_gpus % engine:
        raise ConfigError(f"HOST_ARGS: --rollout-num-gpus-per-engine {engine} does not divide the {rollout_gpus} GPUs "
                          "that sample")
    colocate = not config.fully_async and rollout_gpus > 0
    return Layout(tp, pp, cp, tokens, engine, colocate, train.nodes, train.per_node, rollout_gpus, gpus.per_node)


def _split(gpus: Gpus, given: argparse.Namespace, config: Config) -> tuple[Gpus, int]:
    """(GPUs that train, how many sample): all of them in turn, or with FULLY_ASYNC each its own."""
    if config.supervised:
        return gpus, 0
    if not config.fully_async:
        return gpus, gpus.total
    rollout = given.rollout_gpus or gpus.total // 2
    training = gpus.total - rollout
    if not rollout or training < 1 or (training > gpus.per_node and training % gpus.per_node):
        raise ConfigError(f"FULLY_ASYNC=1: {rollout} of {gpus.total} GPUs would sample and {max(training, 0)} train; "
                          f"it needs one of each, and for training up to {gpus.per_node} or a multiple of that; set "
                          "--rollout-num-gpus in HOST_ARGS, or use more GPUs")
    nodes = max(training // gpus.per_node, 1)
    return Gpus(nodes, training // nodes, gpus.memory), rollout


def _train_sizes(
    model: ModelSize, gpus: Gpus, longest_row: int, given: argparse.Namespace, config: Config
) -> tuple[int, int, int, int]:
    """(tp, cp, pp, tokens per GPU): the first sizes that hold the longest row, in the order of preference."""
    divisions = [
        (tp, cp, pp)
        for pp in _powers(gpus.total, given.pp)
        for cp in _powers(gpus.total, given.cp)
        for tp in _powers(gpus.per_node, config.tp)
        if gpus.total % (tp * cp * pp) == 0 and _splits_heads(model, tp) and model.layers % pp == 0
    ]
    if not divisions:
        raise ConfigError(f"TP={config.tp}, and by HOST_ARGS context parallel {given.cp} and pipeline parallel "
                          f"{given.pp} (0: any), do not divide {gpus.total} training GPUs, {model.heads} heads, "
                          f"{model.kv_heads} key-value heads and {model.layers} layers")
    if config.tp and given.cp and given.pp and config.max_tokens_per_gpu:
        return (*divisions[0], config.max_tokens_per_gpu)  # all given: the user knows better than the estimate
    # Peak bytes, measured on the hosts' own loss functions (slime 624b824, vime 0747f8e, which clones).
    logit = (22 if config.host == "vime" else 12) + (4 if config.temperature != 1 else 0)
    longest = 0
    for tp, cp, pp in divisions:
        held = model.parameters * (6 / (tp * pp) + 12 / gpus.total)
        if held > 0.5 * gpus.memory:
            continue
        per_token = logit * model.vocab / tp + 2 * model.hidden * model.layers / (tp * pp) + 68 * model.hidden / tp
        tokens, share = int((0.85 * gpus.memory - held) / per_token), -(-longest_row // cp)
        if tokens >= share:
            return tp, cp, pp, config.max_tokens_per_gpu or min(tokens, _MOST_ROWS * share)
        longest = max(longest, tokens * cp)
    enough = -(-model.parameters * 18 // (0.5 * gpus.memory))
    what, remedy = f"rows of {longest_row} tokens", f"they hold {longest}; lower MEM_CHUNK_TOKENS, use more GPUs"
    if not longest:
        what, remedy = f"{model.parameters / 1e9:.1f}e9 parameters", f"use {enough:.0f} or more, a smaller model"
    raise ConfigError(f"{what} do not fit {gpus.total} training GPUs of {gpus.memory / GIB:.0f} GiB; {remedy}, "
                      "or give TP, MAX_TOKENS_PER_GPU and, in HOST_ARGS, "
                      "--context-parallel-size and --pipeline-model-parallel-size, all four")


def _engine_gpus(model: ModelSize, gpus: Gpus, given: argparse.Namespace) -> int:
    """The fewest GPUs whose engine share holds the bf16 weights twice over: the other half is for the KV cache."""
    for n in _powers(gpus.per_node):
        if _splits_heads(model, n) and 2 * 2 * model.parameters / n <= given.engine_memory * gpus.memory:
            return n
    raise ConfigError(f"an engine of {model.parameters / 1e9:.1f}e9 parameters does not fit the {gpus.per_node} GPUs "
                      "of one machine; give --rollout-num-gpus-per-engine in HOST_ARGS")


def _splits_heads(model: ModelSize, n: int) -> bool:
    """Query heads divide, and key-value heads divide or repeat evenly."""
    return model.heads % n == 0 and (model.kv_heads % n == 0 or n % model.kv_heads == 0)


def _powers(limit: int, given: int = 0) -> list[int]:
    """What is given, else the powers of two up to ``limit``."""
    return [given] if given else [2**i for i in range(limit.bit_length())]
