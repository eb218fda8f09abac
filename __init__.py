"""mem_agent: train, evaluate and serve memory agents with slime, vime, or the small host that ships here."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = ["MemoryHarness", "MemoryTaskset"]
"""What the ``verifiers`` library looks for in a package that it knows by name (``verifiers_env``)."""


def __getattr__(name: str) -> Any:
    """The classes for ``verifiers``, which is imported with them and not before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.verifiers_env"), name)
