"""The published codes, imported from checkouts that MEMAGENT_ROOT and REMEMR1_ROOT name; without one a test skips.

Known commits: github.com/BytedTsinghua-SIA/MemAgent 76b7a65, github.com/syr-cn/ReMemR1 43e69f3. What they import and
the test does not need (verl's trainer, Ray) is replaced by empty modules while they are imported. Nothing of them is
kept among this process's modules.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
import torch

MEMAGENT, REMEMR1 = "MEMAGENT_ROOT", "REMEMR1_ROOT"
CHUNK, REPLY = 60, 200
"""Tokens of a section and of a reply, in both clients."""


def checkout(name: str) -> Path:
    """Skips the test where the environment variable ``name`` names no folder."""
    folder = os.environ.get(name, "")
    if not folder:
        pytest.skip(f"{name} names no checkout of the published code")
    assert Path(folder).is_dir(), f"{name}={folder!r}: no such folder"
    return Path(folder)


class _Nothing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules of any content for some packages."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self._packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        class Anything(ModuleType):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return MagicMock if name[0].isupper() else (lambda *a, **k: None)

        return Anything(spec.name)

    def exec_module(self, module):
        pass


def load(
    folder: Path, name: str, absent: tuple[str, ...] = (), only: tuple[str, ...] = (), **environment: str
) -> Any:
    """Module ``name`` as seen from ``folder``, with packages that are absent replaced by empty ones; packages in
    ``only`` are empty but for that module itself."""
    if only:
        absent, file = (*absent, *only), folder.joinpath(*name.split(".")).with_suffix(".py")
        name = file.stem
    before, path = dict(sys.modules), list(sys.path)
    top = {name.split(".")[0], "utils", "recurrent", "taskutils", *absent}
    for known in [module for module in sys.modules if module.split(".")[0] in top]:
        del sys.modules[known]
    sys.path.insert(0, str(folder))
    finder = _Nothing(*absent)
    sys.meta_path.insert(0, finder)
    try:
        with patch.dict(os.environ, environment), contextlib.redirect_stdout(io.StringIO()):
            return _from_file(file) if only else importlib.import_module(name)
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = path
        for module in set(sys.modules) - set(before):
            if module.split(".")[0] in top:
                del sys.modules[module]
        sys.modules.update({module: before[module] for module in before if module not in sys.modules})


def _from_file(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_functions(path: Path, *names: str) -> list[Any]:
    """Functions of a file whose imports are not there; they may use torch alone."""
    tree = ast.parse(path.read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(ast.Module(found, type_ignores=[]), str(path), "exec"), namespace)
    return [namespace[name] for name in names]


def client(root: Path, name: str, port: int) -> Any:
    """The evaluation client ``taskutils/memory_eval/utils/<name>.py``, which asks 127.0.0.1:``port``."""
    module = load(
        root / "taskutils" / "memory_eval", f"utils.{name}", SERVE_HOST="127.0.0.1", SERVE_PORT=str(port),
        RECURRENT_CHUNK_SIZE=str(CHUNK), RECURRENT_MAX_NEW=str(REPLY), RECURRENT_MAX_CONTEXT_LEN="1000000",
    )
    return settle_ties(module)


class OrderedTexts(dict):
    """A ``set`` in the order of insertion."""

    def add(self, text: str) -> None:
        self.setdefault(text)


def settle_ties(module: Any) -> Any:
    """Histories are sets there, so the order of equally good memories is chance: here it is that of insertion, and the
    sort keeps it."""
    module.set = lambda *words: set(*words) if words else OrderedTexts()
    retriever = getattr(module, "TfidfRetriever", None)
    if retriever is not None:
        names = retriever.retrieve.__globals__
        names["np"] = SimpleNamespace(argsort=lambda values: np.argsort(values, kind="stable"))
    return module


def templates(module: Any, agent: str) -> dict[str, str]:
    """The client's wording as a file of MEM_PROMPTS has it."""
    slots = {"prompt": "{problem}", "chunk": "{section}", "memory": "{memory}", "recalled_memory": "{recalled}"}
    final = module.TEMPLATE_FINAL_BOXED if hasattr(module, "TEMPLATE_FINAL_BOXED") else module.TEMPLATE_FINAL
    names = ("revisit", "revisit_final") if agent == "rememr1" else ("memory", "final")
    texts = dict(zip(names, (module.TEMPLATE.format(**slots), final.format(**slots)), strict=True))
    markers = {"empty_memory": module.NO_MEMORY, "no_recall": getattr(module, "NO_RECALLED_MEMORY", "")}
    return texts | {name: text for name, text in markers.items() if text}
