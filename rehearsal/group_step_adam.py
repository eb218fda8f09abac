"""Adam with one step count a parameter group, as Apex and Transformer Engine have it on a GPU.

torch's AdamW counts steps for each parameter. Megatron's distributed optimizer saves those, but on loading expects one
number for all of a group: with torch's a run on a CPU could save and never resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .imports import after_import


class GroupStepAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW``, to the last bit, with the signature and the state of Transformer Engine's ``FusedAdam``.

    ``state[p]`` holds the two moments alone; ``group["step"]`` counts.
    """

    def __init__(self, params: Any, *, adam_w_mode: bool = True, **options: Any) -> None:
        assert adam_w_mode, "the hosts decouple weight decay"
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "Megatron passes none"
        for group in self.param_groups:
            for state in self._states(group):
                state["step"] = torch.tensor(float(group.get("step", 0)))
        super().step()
        for group in self.param_groups:
            group["step"] = int(group.get("step", 0)) + 1
            for state in self._states(group):
                del state["step"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called with what is loaded, in which torch looks for its counts."""
        loaded = [moments for moments in state.get("state", {}).values() if moments]
        for moments in loaded:
            moments["step"] = torch.tensor(0.0)
        super().__setstate__(state)
        for moments in loaded:
            del moments["step"]

    def _states(self, group: dict[str, Any]) -> list[dict[str, Any]]:
        return [self.state[p] for p in group["params"] if self.state.get(p)]


def install() -> None:
    """Where Megatron found neither Apex nor Transformer Engine it now takes this class for the latter's."""

    def choose(module: Any) -> None:
        if module.USING_PYTORCH_OPTIMIZER:
            module.Adam, module.USING_PYTORCH_OPTIMIZER = GroupStepAdamW, False

    def save_and_load(module: Any) -> None:
        if not module.HAVE_APEX_OR_TE:
            module.HAVE_APEX_OR_TE = module.USING_TE_OPTIMIZER = True
        # In fp32 what is loaded into are views of the model's own weights, which autograd would guard.
        optimizer = module.DistributedOptimizer
        optimizer.load_state_dict = torch.no_grad()(optimizer.load_state_dict)

    after_import("megatron.core.optimizer", choose)
    after_import("megatron.core.optimizer.distrib_optimizer", save_and_load)
