"""The published codes, imported from checkouts that MEMAGENT_ROOT, REMEMR1_ROOT and BABILONG_ROOT name; without one a
test skips.

Known commits: github.com/BytedTsinghua-SIA/MemAgent 76b7a65, github.com/syr-cn/ReMemR1 43e69f3,
github.com/booydar/babilong 7a6efee. What they import and
the test does not need (verl's trainer, Ray) is replaced by empty modules while they are imported. Nothing of them is
kept among this process's modules.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np

from mem_agent.tests.helpers.host_checkout import named

MEMAGENT, REMEMR1 = "MEMAGENT_ROOT", "REMEMR1_ROOT"
CHUNK, REPLY = 60, 200
"""Tokens of a section and of a reply, in both clients."""


def checkout(name: str) -> Path:
    """Skips the test where the environment variable ``name`` names none."""
    return named(name, "checkout of the published code")


class _Nothing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Empty modules of any content for some packages, except for the one module ``real`` of theirs in ``folder``."""

    def __init__(self, folder: Path, real: str, packages: tuple[str, ...]) -> None:
        self._folder, self._real, self._packages = folder, real, packages

    def find_spec(self, name, path=None, target=None):
        if name == self._real or name.split(".")[0] not in self._packages:
            return None
        spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(self._folder.joinpath(*name.split(".")))]
        return spec

    def create_module(self, spec):
        class Anything(ModuleType):
            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return MagicMock if name[0].isupper() else MagicMock()

        return Anything(spec.name)

    def exec_module(self, module):
        pass


def load(folder: Path, name: str, *absent: str, **environment: str) -> Any:
    """Module ``name`` as seen from ``folder``; ``absent`` packages are empty ones, but for that module itself."""
    before, own = dict(sys.modules), {name.split(".")[0], "utils", "recurrent", "taskutils", *absent}

    def forget() -> None:
        for known in [module for module in sys.modules if module.split(".")[0] in own]:
            del sys.modules[known]

    forget()
    finder = _Nothing(folder, name, absent)
    try:
        with (
            patch.object(sys, "path", [str(folder), *sys.path]), patch.dict(os.environ, environment),
            patch.object(sys, "meta_path", [finder, *sys.meta_path]), contextlib.redirect_stdout(io.StringIO()),
        ):
            return importlib.import_module(name)
    finally:
        forget()
        sys.modules.update(before)


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
