"""TRAIN_DTYPE: the number format of the weights in training and in the engines beside it.

bfloat16 is mixed precision as Megatron has it: weights, activations and gradients of products are bfloat16; master
weights, the sum of gradients, optimizer state, log-probs and loss stay float32. It pays where the processor multiplies
bfloat16 natively (AVX512-BF16: twice float32's rate; AMX: more) and the model is large enough for products to be
what a step takes. So ``auto`` measures, once, as a run begins; GPUs need no measurement.
"""

from __future__ import annotations

import logging
import timeit
from pathlib import Path

import torch

from ..config import Config
from .hf_model import model_config, parameter_count

logger = logging.getLogger("mem_agent")

WORTH_BFLOAT16 = 50_000_000
"""From this many parameters on, matrix products are most of a step."""
FASTER_BY = 1.5
"""What bfloat16 must at least gain in a product, for the conversions and element-wise operations that it adds. Where
it gained 2.0, a step of SmolLM2-135M took 55 s instead of 89 (two cores with AVX512-BF16)."""


def train_dtype(config: Config) -> torch.dtype:
    """Of weights and activations; ``auto`` that nobody has settled is float32."""
    return torch.bfloat16 if config.train_dtype == "bfloat16" else torch.float32


def with_train_dtype(config: Config, model: Path, began: str = "auto") -> Config:
    """The config with TRAIN_DTYPE settled for the model in the folder ``model``.

    Args:
        began: what a run that continues began with: it keeps that, on whatever machine.
    """
    if config.train_dtype == "auto" and began == "auto":
        began = "float32"
        large = parameter_count(model_config(model)) >= WORTH_BFLOAT16
        if large and torch.cuda.is_available():
            began = "bfloat16"
        elif large:
            slow, fast = product_rate(torch.float32), product_rate(torch.bfloat16)
            began = "bfloat16" if fast >= FASTER_BY * slow else "float32"
            logger.info("TRAIN_DTYPE=%s: this processor multiplies at %.0f GFLOP/s in float32, at %.0f in bfloat16",
                        began, slow / 1e9, fast / 1e9)
    return config.replace(train_dtype=began) if config.train_dtype == "auto" else config


def product_rate(dtype: torch.dtype) -> float:
    """Floating point operations per second in ``[512, 576] @ [576, 576]``, the best of two after one that compiles
    the kernel. About a second: without native support bfloat16 reaches 1 GFLOP/s.
    """
    left, right = torch.ones(512, 576, dtype=dtype), torch.ones(576, 576, dtype=dtype)
    _, *seconds = timeit.repeat(lambda: left @ right, number=1, repeat=3)
    return 2.0 * left.numel() * right.shape[1] / min(seconds)
