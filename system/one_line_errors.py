"""How a command ends when it cannot go on: one line on standard error and an exit code, never a traceback.

130 after an interrupt, 1 after an error that is the user's or the machine's (``errors.py``); an ``OSError`` is a full
disk or a folder without permission, and its text names the file; standard output has no name, and gets one. 141 and no
line where whoever read standard output has left, as ``head`` does. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import codecs
import errno
import functools
import io
import os
import select
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import ParamSpec

from .errors import MemAgentError
from .logging_setup import log_printable
from .printable import printable

P = ParamSpec("P")
READER_GONE = 141
"""What a shell gives for SIGPIPE."""
_LONGEST = 4096
"""Letters of a line; a path alone may have nearly as many."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
            log_printable()
            _show_what_it_can()
            try:
                code = main(*args, **kwargs)
                if sys.stdout is not None:  # closed before this process began
                    sys.stdout.flush()
                return code
            except KeyboardInterrupt:
                print(f"interrupted; {interrupted}", file=sys.stderr)
                return 130
            except (MemAgentError, OSError) as error:
                if isinstance(error, BrokenPipeError) and _nobody_reads():
                    return READER_GONE
                if isinstance(error, OSError) and error.filename is None and error.errno in _FULL and sys.stdout:
                    error.filename = "standard output, or a file that the system does not name"
                    with suppress(OSError):
                        sys.stdout.flush()
                    _lose_output()
                print("error:", _shown(_said(error)), file=sys.stderr)
                return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)

        return ending

    return decorate


def _show_what_it_can() -> None:
    """A standard output that is not UTF-8 has a question mark for what it cannot write, in the place of an error."""
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        sys.stdout.reconfigure(errors="replace")


def _said(error: MemAgentError | OSError) -> str:
    """``data.jsonl: Permission denied`` of the system's errors, as other commands say it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        files = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return f"{' -> '.join(files)}: {error.strerror}"
    return str(error) or type(error).__name__


def _shown(text: str) -> str:
    """What files of others say stands in errors, and may be anything."""
    line = printable(" ".join(text.splitlines()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _nobody_reads() -> bool:
    """Whether standard output has lost its reader; what is left for it then goes nowhere."""
    if sys.stdout is None:
        return False
    output = select.poll()
    output.register(sys.stdout, 0)  # errors are told without being asked for
    gone = bool(output.poll(0))
    if gone:
        _lose_output()
    return gone


def _lose_output() -> None:
    """What is left for standard output goes nowhere; else Python's own end has an error of its own."""
    with suppress(io.UnsupportedOperation):  # a caller's own, in this process
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
