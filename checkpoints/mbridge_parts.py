"""What is used of mbridge, without its other architectures: their imports take 3 of the 9 CPU seconds of a start.

mbridge has no way in but one that imports them all, the ``__init__`` of two packages. So for a moment these stand
there empty. Whoever imports mbridge afterwards gets the whole, these classes among it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path


@contextlib.contextmanager
def _empty_packages(whole: str, *parts: str) -> Iterator[None]:
    """In the place of ``whole`` and of packages below it, as far as they have not been imported."""
    found = importlib.util.find_spec(whole)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {whole!r}", name=whole)
    made = [name for name in (whole, *parts) if name not in sys.modules]
    for name in made:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(Path(found.origin).parents[1].joinpath(*name.split(".")))]
        sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


with _empty_packages("mbridge", "mbridge.models"):
    from mbridge.core import LLMBridge as LLMBridge
    from mbridge.core.parallel_states import ParallelStates as ParallelStates
    from mbridge.models.llama import LLaMABridge as LLaMABridge
    from mbridge.models.qwen2 import Qwen2Bridge as Qwen2Bridge
    from mbridge.models.qwen3 import Qwen3Bridge as Qwen3Bridge
