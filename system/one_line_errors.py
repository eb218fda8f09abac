"""How a command ends when it cannot go on: one line on standard error and an exit code, never a traceback.

130 after an interrupt, 1 after an error that is the user's or the machine's (``errors.py``); an ``OSError`` is a full
disk or a folder without permission, and its text names the file. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec

from .errors import MemAgentError

P = ParamSpec("P")


def one_line_errors(interrupted: str) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorates a command's ``main``; ``interrupted`` says what an interrupt leaves behind and how to go on."""

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def ending(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                return main(*args, **kwargs)
            except KeyboardInterrupt:
                print(f"interrupted; {interrupted}", file=sys.stderr)
                return 130
            except (MemAgentError, OSError) as error:
                print(f"error: {error}", file=sys.stderr)
                return 1

        return ending

    return decorate
