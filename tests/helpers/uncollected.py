"""Measuring without the garbage collector: to look through all that torch and transformers hold takes a third of a
second, and that falls into whichever measurement happens to make the next object."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
