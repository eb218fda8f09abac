"""Acting right before or right after a module is imported, wherever that happens first.

Nothing is imported for it: a process that never needs a framework pays for none.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any


def before_import(packages: Collection[str], act: Callable[[], None]) -> None:
    """Call ``act()`` once, before the first of the top-level ``packages`` is imported."""

    class Watch(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any, target: Any = None) -> None:
            if name in packages:
                sys.meta_path.remove(self)
                act()

    sys.meta_path.insert(0, Watch())


_changes: dict[str, list[Callable[[ModuleType], None]]] = {}


def after_import(module: str, change: Callable[[ModuleType], None]) -> None:
    """Call ``change(module)`` when ``module`` has been executed, or at once, in the order of calls."""
    if module in sys.modules:
        change(sys.modules[module])
        return
    if not _changes:
        sys.meta_path.insert(0, _Changing())
    _changes.setdefault(module, []).append(change)


class _Changing(importlib.abc.MetaPathFinder):
    """Finds what Python would find, and has it changed after its execution."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_change(loaded: ModuleType) -> None:
            execute(loaded)
            for change in _changes[name]:
                change(loaded)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign,assignment]
        return spec


def moved_module(name: str, now: str) -> None:
    """Where no module ``name`` is found, importing it gives the module ``now``."""

    class Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, wanted: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
            return importlib.machinery.ModuleSpec(name, self) if wanted == name else None

        def exec_module(self, module: ModuleType) -> None:
            sys.modules[name] = importlib.import_module(now)

    sys.meta_path.append(Moved())
