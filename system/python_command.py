"""How the pack starts Python: without the working folder on the path, where a ``types.py`` of the user's may lie."""

from __future__ import annotations

import sys


def python_module(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command that runs ``module``, by this process's Python or by ``python``."""
    return [python or sys.executable, "-P", "-m", module, *arguments]
