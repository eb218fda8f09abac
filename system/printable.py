"""Text of models, servers and files, shown to people: it may be anything, and must not command their terminal."""

from __future__ import annotations

import re

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for line breaks and tabs, turns of the writing direction, halves of characters."""

_NO_UTF_8 = re.compile("[\udc80-\udcff]")
"""What Python has for the bytes of a file's name that are none."""

_OF_PROGRESS = re.compile("(\r|\x1b\\[[0-9;]{0,20}m)")
"""Back to the line's begin, and colours."""


def printable(text: str) -> str:
    return _COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)


def encodable(name: str) -> str:
    """A file's name as a text that can be written: a byte of it that is no UTF-8 as ``\\xe9``."""
    return _NO_UTF_8.sub(lambda found: f"\\x{ord(found.group()) - 0xDC00:02x}", name)


def printable_log(text: str) -> str:
    """As ``printable``, with what bars of progress and coloured lines of programs are made of."""
    parts = _OF_PROGRESS.split(text)
    parts[::2] = map(printable, parts[::2])
    return "".join(parts)


def one_line(text: str, most: int | None = None) -> str:
    """Printable, on one line, and cut to ``most`` characters if given."""
    line = printable(" ".join(text.split()))
    return line if most is None or len(line) <= most else line[: most - 1].rstrip() + "…"
