"""TRAIN_DTYPE: the number format of the weights in training and in the engines beside it.

bfloat16 is mixed precision as Megatron has it: weights, activations and gradients of products are bfloat16; master
weights, the sum of gradients, optimizer state, log-probs and loss stay float32. It pays where the processor multiplies
bfloat16 natively (AMX or AVX512-BF16: 5 to 10 times float32's rate) and the model is large enough for products to be
what a step takes. So ``auto`` measures, once, as a run begins.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import torch

from ..config import SETTINGS_FILE, Config, read_yaml
from .hf_folder import DTYPES
from .hf_model import model_config, parameter_count

logger = logging.getLogger("mem_agent")

WORTH_BFLOAT16 = 50_000_000
"""From this many parameters on, matrix products are most of a step."""
FASTER_BY = 2.0
"""What bfloat16 must at least gain in a product, for the conversions and element-wise operations that it adds."""


def train_dtype(config: Config) -> torch.dtype:
    """Of weights and activations; ``auto`` that nobody has settled is float32."""
    return DTYPES.get(config.train_dtype, torch.float32)


def with_train_dtype(config: Config, model: Path, run: Path | None = None) -> Config:
    """The config with TRAIN_DTYPE settled for the model in the folder ``model``.

    Args:
        run: the folder of a training run, which keeps what it began with, on whatever machine.
    """
    if config.train_dtype != "auto":
        return config
    left = run / SETTINGS_FILE if run is not None else None
    found = read_yaml(left).get("TRAIN_DTYPE", "float32") if left is not None and left.is_file() else None
    if found not in DTYPES:
        found = "float32"
        # GPUs train in float32 unless told otherwise, as they always did here.
        if parameter_count(model_config(model)) >= WORTH_BFLOAT16 and not torch.cuda.is_available():
            rates = {name: product_rate(DTYPES[name]) for name in ("float32", "bfloat16")}
            found = "bfloat16" if rates["bfloat16"] >= FASTER_BY * rates["float32"] else "float32"
            logger.info("TRAIN_DTYPE=%s: this processor multiplies at %.0f GFLOP/s in float32, at %.0f in bfloat16",
                        found, rates["float32"] / 1e9, rates["bfloat16"] / 1e9)
    return config.replace(train_dtype=found)


def product_rate(dtype: torch.dtype, repeats: int = 2) -> float:
    """Floating point operations per second in ``[512, 576] @ [576, 576]``, the best of ``repeats``, after one that
    compiles the kernel. About a second: without native support bfloat16 reaches 1 GFLOP/s.
    """
    left, right = torch.ones(512, 576, dtype=dtype), torch.ones(576, 576, dtype=dtype)
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        torch.matmul(left, right)
        best = min(best, time.perf_counter() - start)
    return 2.0 * left.numel() * right.shape[1] / best
