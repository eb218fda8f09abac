"""What is fuzzed: a function of bytes that others wrote, seeds that it reads, and the errors that are an answer.

A target may end in a result, in a ``MemAgentError``, or in an error that its function documents. All else is a fault:
a traceback where one line is promised, an endless walk, memory without a bound.

A fault is told by its kind and by where the pack was when it came::

    RecursionError in config.py:read_yaml

Invariant: inputs with one name are one fault, so a campaign of millions of inputs tells each once.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mem_agent.system.errors import MemAgentError

PACK = Path(__file__).parents[2]
OWN = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    """What means something to the reader: put into inputs, and repeated to see how time grows."""
    may_raise: tuple[type[BaseException], ...] = ()
    """Beside ``MemAgentError``: what the function says it raises."""
    slow: bool = False
    """Takes milliseconds an input, because it starts a process or a library does: a test tries fewer."""


def fault_of(target: Target, data: bytes) -> BaseException | None:
    """What ``data`` does to the target that it must not."""
    try:
        target.run(data)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # panics of Rust libraries and CheckpointException are no Exception
        return None if isinstance(error, (MemAgentError, *target.may_raise)) else error
    return None


def name_of(error: BaseException) -> str:
    """Kind and place: the innermost line of the pack that is no test."""
    frames = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    functions = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    own = [f"{path.relative_to(PACK)}:{function}" for path, function in zip(frames, functions, strict=True)
           if path.is_relative_to(PACK) and not path.is_relative_to(OWN)]
    return f"{type(error).__name__} in {own[-1] if own else 'the target itself'}"


def scratch() -> Path:
    """A folder of this process for the targets that read files: two that are searched at once share none."""
    folder = _of_all_processes() / str(os.getpid())
    folder.mkdir(exist_ok=True)
    return folder


@cache
def _of_all_processes() -> Path:
    """Of the process that forks the searches, which removes it when it ends."""
    kept = tempfile.TemporaryDirectory(prefix="mem-agent-fuzz-")
    _KEPT.append(kept)  # else it is gone as soon as nobody holds it
    return Path(kept.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def written(name: str, data: bytes) -> Path:
    """A file with ``data``, in place of the one before."""
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
