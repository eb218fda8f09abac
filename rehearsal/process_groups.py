"""The hosts' reloadable process groups under the torch that this pack pins, which calls some collectives by new names.

The hosts wrap every group in a class of theirs that hands on each collective by its name. One it does not know reaches
the wrapper's own C++ half, which has no backend. Only tensor parallelism with sequence parallelism asks for these.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from .imports import after_import

_NEW_NAMES = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
)


def install() -> None:
    for host in ("slime", "vime"):
        after_import(f"{host}.utils.reloadable_process_group", _hand_on)


def _hand_on(module: ModuleType) -> None:
    group = module.ReloadableProcessGroup
    for name in _NEW_NAMES:
        if name not in vars(group):
            setattr(group, name, _handed_on(name))


def _handed_on(name: str) -> Callable[..., Any]:
    return lambda self, *args, **options: self._fwd(name, *args, **options)
