"""Running megatron-core without CUDA.

megatron-core asks for CUDA in a handful of places even when every tensor lives on the CPU. ``prepare`` replaces three
process-wide queries once; ``device_mode`` is the context that model build, optimizer, pipeline schedule and
checkpointing run in. With a GPU present both leave torch alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CpuAsCuda(TorchFunctionMode):
    """In this mode "cuda" means the CPU, pinning does nothing, and a CPU tensor's ``type()`` says ``torch.cuda``."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        if func is torch.Tensor.to and len(args) > 1 and str(args[1]).startswith("cuda"):
            args = (args[0], torch.device("cpu"), *args[2:])
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            # megatron-core asserts on the name 'torch.cuda.FloatTensor' before it clips gradients.
            return result.replace("torch.", "torch.cuda.", 1)
        return result


def device_mode() -> contextlib.AbstractContextManager:
    return contextlib.nullcontext() if torch.cuda.is_available() else CpuAsCuda()


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def prepare() -> None:
    """Make this process fit for megatron-core; harmless to call twice. Call before building a model."""
    if torch.cuda.is_available():
        return
    # Compiling the fused ops costs more than it gives at these sizes, and needs a C++ compiler.
    torch._dynamo.config.disable = True
    from megatron.core.tensor_parallel import random as mcore_random

    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]
    mcore_random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    mcore_random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
