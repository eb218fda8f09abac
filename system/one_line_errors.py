"""How a command ends when it cannot go on: one line on standard error and an exit code, never a traceback.

130 after an interrupt, 1 after an error that is the user's or the machine's (``errors.py``); an ``OSError`` is a full
disk or a folder without permission, and its text names the file. 141 and no line where whoever read standard output
has left, as ``head`` does. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import functools
import os
import select
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ParamSpec

from .errors import MemAgentError

P = ParamSpec("P")
READER_GONE = 141
"""What a shell gives for SIGPIPE."""


def one_line_errors(
    interrupted: str, codes: Mapping[type[Exception], int] = MappingProxyType({})
) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorates a command's ``main``.

    Args:
        interrupted: what an interrupt leaves behind and how to go on.
        codes: exit codes other than 1, by kind of error; the first that fits counts.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def ending(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                code = main(*args, **kwargs)
                _flush()
                return code
            except KeyboardInterrupt:
                print(f"interrupted; {interrupted}", file=sys.stderr)
                return 130
            except (MemAgentError, OSError) as error:
                if isinstance(error, BrokenPipeError) and _nobody_reads():
                    return READER_GONE
                print("error:", *_said(error).splitlines(), file=sys.stderr)
                return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)

        return ending

    return decorate


def _said(error: MemAgentError | OSError) -> str:
    """``data.jsonl: Permission denied`` of the system's errors, as other commands say it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        files = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return f"{' -> '.join(files)}: {error.strerror}"
    return str(error) or type(error).__name__


def _flush() -> None:
    if sys.stdout is None:  # closed before this process began
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        error.filename = "standard output"
        raise


def _nobody_reads() -> bool:
    """Whether standard output has lost its reader; what is left for it then goes nowhere."""
    if sys.stdout is None:
        return False
    output = select.poll()
    output.register(sys.stdout, 0)  # errors are told without being asked for
    gone = bool(output.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone
