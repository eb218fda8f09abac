"""``torch.cuda``, answered by a machine that has none, for a whole process; and what Megatron-LM needs beyond it.

Megatron-LM's training code and vime ask for devices, streams, memory and random states in some sixty places. Each call
is answered with what is true of a CPU: nothing to wait for, one device, torch's own random state. Numbers are not
touched: whatever is computed is computed by torch on the CPU, in the dtype that was asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import torch
from torch.optim.adamw import adamw

from ..checkpoints.megatron_cpu import CpuAsCuda

_CPU = torch.device("cpu")


class _NoStream:
    """A stream or event on which everything is done as soon as it is asked for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Callable[..., bool]:
        return lambda *args: True


def install(_: ModuleType) -> None:
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


# --- the optimizer ---------------------------------------------------------------------------------------------------

class GroupStepAdamW(torch.optim.Optimizer):
    """``torch.optim.AdamW``, to the last bit, with the signature and the state of Transformer Engine's ``FusedAdam``:
    ``state[p]`` holds the two moments alone, ``group["step"]`` counts.

    torch counts steps for each parameter. Megatron's distributed optimizer saves those, but on loading expects one
    number for all of a group: with torch's a run on a CPU could save and never resume.
    """

    def __init__(self, params: Any, *, adam_w_mode: bool = True, **options: Any) -> None:
        assert adam_w_mode, "the hosts decouple weight decay"
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if not self.state[p]:
                    self.state[p] = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
            firsts, seconds = ([self.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq"))
            count = int(group.get("step", 0))
            beta1, beta2 = group["betas"]
            adamw(
                params, [p.grad for p in params], firsts, seconds, [], [torch.tensor(float(count)) for _ in params],
                amsgrad=False, maximize=False, lr=group["lr"], beta1=beta1, beta2=beta2, eps=group["eps"],
                weight_decay=group["weight_decay"],
            )
            group["step"] = count + 1


def choose_adam(module: Any) -> None:
    """Megatron found neither Apex nor Transformer Engine; it now takes this class for the latter's."""
    module.Adam, module.USING_PYTORCH_OPTIMIZER = GroupStepAdamW, False


def save_and_load_groups(module: Any) -> None:
    module.Adam = GroupStepAdamW
    module.HAVE_APEX_OR_TE = module.USING_TE_OPTIMIZER = True
    # In fp32 what is loaded into are views of the model's own weights, which autograd would guard.
    optimizer = module.DistributedOptimizer
    optimizer.load_state_dict = torch.no_grad()(optimizer.load_state_dict)


# --- collectives -----------------------------------------------------------------------------------------------------

_COLLECTIVES = ("all_gather_single", "all_gather_single_coalesced", "all_to_all_single", "reduce_scatter_single",
                "reduce_scatter_single_coalesced")


def name_collectives(module: Any) -> None:
    """The hosts wrap every process group in a class of theirs that hands on each collective by its name. One that
    it does not know reaches the wrapper's own C++ half, which has no backend; only tensor parallelism with sequence
    parallelism asks for these, by the names that the pinned torch gives them.
    """
    group = module.ReloadableProcessGroup
    for name in set(_COLLECTIVES) - set(vars(group)):
        setattr(group, name, lambda self, *args, _name=name, **options: self._fwd(_name, *args, **options))
