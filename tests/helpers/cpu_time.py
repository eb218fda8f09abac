"""A bound on work that does not hang on what else runs: on this machine, or in this process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from .uncollected import uncollected


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """The block takes less than ``seconds`` of its own thread's CPU.

    Without collections: one looks through all that earlier tests have left in memory, for a second and more.
    """
    with uncollected():
        began = time.thread_time()
        yield
        took = time.thread_time() - began
    assert took < seconds, f"{took:.2f} s of CPU, at most {seconds} were allowed"
