"""mem_agent: train, evaluate and serve memory agents with slime, vime, or the small host that ships here."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

__version__ = "0.1.0"

__all__ = ["MemoryHarness", "MemoryTaskset"]
"""What the ``verifiers`` library looks for in a package that it knows by name (``verifiers_env``)."""


def __getattr__(name: str) -> Any:
    """The classes for ``verifiers``, which is imported with them and not before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.verifiers_env"), name)


def run_in_package(script: str) -> NoReturn:
    """Run a command that was started as a plain script, ``python prepare_data.py``, as a module of the package; exit.

    Such a command begins with::

        if not __package__:
            from __init__ import run_in_package

            run_in_package(__file__)

    Python puts the script's own folder on ``sys.path``, where the pack's modules would be found under wrong names and
    relative imports fail. So that entry is taken off, and the folder becomes ``mem_agent``, whatever it is called.
    """
    folder = Path(script).absolute().parent  # not resolved: a link named mem_agent counts by its own name
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").absolute() != folder]
    if folder.name == "mem_agent":
        sys.path.insert(0, str(folder.parent))
    else:
        spec = importlib.util.spec_from_file_location("mem_agent", __file__, submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        sys.modules["mem_agent"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["mem_agent"])
    runpy.run_module(f"mem_agent.{Path(script).stem}", run_name="__main__", alter_sys=True)
    sys.exit(0)
