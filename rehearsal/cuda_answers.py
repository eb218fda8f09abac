"""``torch.cuda``, answered by a machine that has none, for a whole process.

Megatron-LM's training code and vime ask for devices, streams, memory and random states in some sixty places. Each call
is answered with what is true of a CPU: nothing to wait for, one device, torch's own random state. Numbers are not
touched: whatever is computed is computed by torch on the CPU, in the dtype that was asked for.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import psutil
import torch

from ..checkpoints.megatron_cpu import CpuAsCuda

_CPU = torch.device("cpu")


class _NoStream:
    """A stream or event on which everything is done as soon as it is asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


def install() -> None:
    torch._dynamo.config.disable = True  # compiling costs more than these sizes give, and needs a C++ compiler
    cuda: Any = torch.cuda
    cuda.current_device = lambda: _CPU
    cuda.get_device_capability = lambda device=None: (9, 0)  # Hopper's, as on the cluster
    cuda.get_device_properties = lambda device=None: SimpleNamespace(major=9, minor=0, uuid="cpu", name="cpu")
    for name in ("synchronize", "set_device", "empty_cache", "ipc_collect", "init"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.Stream = cuda.Event = _NoStream
    cuda.current_stream = cuda.default_stream = lambda device=None: _NoStream()
    cuda.stream = lambda stream: contextlib.nullcontext()
    for place in (cuda, cuda.random):
        place.get_rng_state = lambda device=None: torch.get_rng_state()
        place.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    cuda.mem_get_info = lambda device=None: (psutil.virtual_memory().available, psutil.virtual_memory().total)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(cuda, name, lambda device=None: 0)
    CpuAsCuda().__enter__()  # for good: hosts name "cuda" all over their trainers
