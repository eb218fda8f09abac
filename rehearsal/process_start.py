"""What each process of a rehearsed job does before it imports a framework.

    torch.cuda     answered by the CPU                                 ``cuda_answers``
    Adam           one step count a parameter group, as on a GPU       ``group_step_adam``
    slime, vime    the few places that ask for more than torch         ``slime_answers``, ``vime_answers``
    collectives    by the names that the pinned torch gives them
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .imports import after_import, before_import

_FRAMEWORKS = ("megatron", "slime", "vime")
_COLLECTIVES = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
)


def prepare() -> None:
    before_import(_FRAMEWORKS, answer_for_the_gpu)


def answer_for_the_gpu() -> None:
    """Make this process fit for both hosts and Megatron-LM; once."""
    from . import cuda_answers, group_step_adam, slime_answers, vime_answers

    cuda_answers.install()
    group_step_adam.install()
    slime_answers.install()
    vime_answers.install()
    for host in ("slime", "vime"):
        after_import(f"{host}.utils.reloadable_process_group", _name_collectives)


def _name_collectives(module: ModuleType) -> None:
    """The hosts wrap every process group in a class of theirs that hands on each collective by its name. One that
    it does not know reaches the wrapper's own C++ half, which has no backend; only tensor parallelism with sequence
    parallelism asks for these.
    """
    group = module.ReloadableProcessGroup
    for name in _COLLECTIVES:
        if name not in vars(group):
            setattr(group, name, _handed_on(name))


def _handed_on(name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: self._fwd(name, *args, **options)
