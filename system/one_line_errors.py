"""How a command ends when it cannot go on: one line on standard error and an exit code, never a traceback.

130 after an interrupt, 1 after an error that is the user's or the machine's (``errors.py``); an ``OSError`` is a full
disk or a folder without permission, and its text names the file. Anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ParamSpec

from .errors import MemAgentError

P = ParamSpec("P")


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
                return main(*args, **kwargs)
            except KeyboardInterrupt:
                print(f"interrupted; {interrupted}", file=sys.stderr)
                return 130
            except (MemAgentError, OSError) as error:
                print("error:", *(str(error) or type(error).__name__).splitlines(), file=sys.stderr)
                return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)

        return ending

    return decorate
