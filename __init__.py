"""mem_agent: train, evaluate and serve memory agents with slime, vime, or the small host that ships here."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__version__ = "0.1.0"

_FORMER_HOOKS = ("rollout_eval", "rollout_filter", "rollout_log")


class _FormerHooks:
    """Answers a launch script that names a hook by a module it no longer is in."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        package, _, module = name.rpartition(".")
        if package == __name__ and module in _FORMER_HOOKS:
            raise ModuleNotFoundError(f"{name} is now part of {__name__}.rollout: write {__name__}.rollout.<hook>")


__all__ = ["MemoryHarness", "MemoryTaskset"]
"""What the ``verifiers`` library looks for in a package that it knows by name (``verifiers_env``)."""


def __getattr__(name: str) -> Any:
    """The classes for ``verifiers``, which is imported with them and not before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.verifiers_env"), name)


sys.meta_path.insert(0, _FormerHooks)  # type: ignore[arg-type]
