"""Text of models, servers and files, shown to people: it may be anything, and must not command their terminal."""

from __future__ import annotations

import re

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for line breaks and tabs, turns of the writing direction, halves of characters."""


def printable(text: str) -> str:
    return _COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, most: int | None = None) -> str:
    """Printable, on one line, and cut to ``most`` characters if given."""
    line = printable(" ".join(text.split()))
    return line if most is None or len(line) <= most else line[: most - 1].rstrip() + "…"
