"""How a command ends when it cannot go on: one line on standard error and an exit code.

130 after an interrupt; 1 after an error that the pack raised for the user (``errors.py``) or a file that is missing or
closed to the user; 141 and no line where the reader of standard output has left, as ``head`` does. Every other error
is unexpected and keeps its traceback.
"""

from __future__ import annotations

import functools
import os
import select
import sys
from collections.abc import Callable, Mapping
from typing import ParamSpec

from .errors import MemAgentError

P = ParamSpec("P")
READER_GONE = 141
"""What a shell gives for SIGPIPE."""


def one_line_errors(
    interrupted: str, codes: Mapping[type[Exception], int] = {}
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
                sys.stdout.flush()
                return code
            except KeyboardInterrupt:
                print(f"interrupted; {interrupted}", file=sys.stderr)
                return 130
            except BrokenPipeError:
                if not _reader_left():
                    raise
                return READER_GONE
            except (MemAgentError, FileNotFoundError, PermissionError) as error:
                message = str(error)
                if not isinstance(error, MemAgentError):
                    if error.filename is None:
                        raise
                    message = f"{error.filename}: {error.strerror}"
                print("error:", " ".join(message.split()), file=sys.stderr)
                return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)

        return ending

    return decorate


def _reader_left() -> bool:
    """Whether standard output has lost its reader; what is left for it then goes nowhere."""
    output = select.poll()
    output.register(sys.stdout, 0)  # errors are reported without being asked for
    if not output.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
