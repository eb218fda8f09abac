"""Trainer speed: ``python -m mem_agent.benchmarks.trainer [--model HF_FOLDER] [--length 120] [--rows 128]``.

Prints forward-only and training tokens per second, and their share of what this machine's cores reach in a plain
float32 matrix product with the same number of threads. Arithmetic per trained token: 6 x weights that multiply, plus
12 x layers x hidden x context / 2 for causal attention (2 and 4 for a forward pass); Kaplan et al., arXiv 2001.08361.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from ..config import Config
from ..system.logging_setup import start_logging
from ..training.rows import TrainRow
from ..training.trainer import Trainer

POCKET = Path(__file__).parents[1] / "pocket" / "start"


def matmul_peak(size: int = 1024) -> float:
    """FLOP/s of a float32 product of two square matrices, the median of ten."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2 * size**3 / seconds(lambda: a @ b, 10)


def seconds(call: Callable[[], object], times: int) -> float:
    """Median wall time of ``call`` after one warm-up."""
    call()
    measured = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        measured.append(time.perf_counter() - began)
    return statistics.median(measured)


def flops_per_token(trainer: Trainer, length: int) -> float:
    """Of a forward and backward pass."""
    config = trainer.model.config
    weights = sum(p.numel() for n, p in trainer.model.named_parameters() if p.dim() > 1 and "word_emb" not in n)
    weights += trainer.bridge.padded_vocab_size * config.hidden_size  # the output product, also when tied
    width = config.kv_channels * config.num_attention_heads
    return 6 * weights + 6 * config.num_layers * width * length


def random_rows(count: int, length: int, vocabulary: int) -> list[TrainRow]:
    draw = random.Random(0)
    tail = length // 8
    return [
        TrainRow([draw.randrange(vocabulary) for _ in range(length)], tail, [1] * tail, [-1.0] * tail, 0.1, i, tail)
        for i in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the trainer.")
    parser.add_argument("--model", default=str(POCKET))
    parser.add_argument("--length", type=int, default=80)
    parser.add_argument("--rows", type=int, default=128)
    options = parser.parse_args()
    start_logging()
    trainer = Trainer(Config(hf_ckpt=options.model, kl_coef=0.0, rollout_batch_size=options.rows, lr=0.0))
    rows = random_rows(options.rows, options.length, trainer.bridge.vocab_size)
    tokens = options.rows * options.length
    old = trainer.log_probs(rows)
    peak, work = matmul_peak(), flops_per_token(trainer, options.length)
    print(f"threads {torch.get_num_threads()}, float32 matmul {peak / 1e9:.1f} GFLOP/s")
    for name, call, share in (
        ("log-probs", lambda: trainer.log_probs(rows), 1 / 3),
        ("training step", lambda: trainer.train_step(rows, old), 1.0),
    ):
        rate = tokens / seconds(call, 5)
        print(f"{name}: {rate:,.0f} tokens/s, {rate * work * share / peak:.0%} of matmul")


if __name__ == "__main__":
    main()
