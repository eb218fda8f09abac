"""Rows that a command leaves out: the first are shown one by one, all are counted; with --strict the first ends it."""

from __future__ import annotations

import sys

from tqdm import tqdm

from ..system.errors import MemAgentError
from ..system.text import one_line

_SHOWN = 20
_LONGEST = 1000
"""Characters of a line."""


class NoGoodRows(MemAgentError):
    """Exit code 1: there is nothing to write."""


class BadRows:
    """Counts and reports them on standard error."""

    def __init__(self, command: str, *, strict: bool) -> None:
        self._command, self._strict = command, strict
        self.count = 0

    def add(self, text: str) -> None:
        """``text`` says which row and why, perhaps in words of the row. Raises NoGoodRows under --strict."""
        text = one_line(text, _LONGEST)
        if self._strict:
            raise NoGoodRows(f"{text} (--strict: nothing is written)")
        self.count += 1
        if self.count <= _SHOWN:
            tqdm.write(f"{self._command}: bad row left out, {text}", file=sys.stderr)

    def tell_rest(self) -> None:
        if self.count > _SHOWN:
            print(f"{self._command}: {self.count - _SHOWN} more bad rows not shown", file=sys.stderr)
