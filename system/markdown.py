"""Tables in Markdown, whose text may be anybody's: they are printed as well, and command no terminal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from .printable import printable

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", "|": "\\|"})


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], words: Collection[str] = ()) -> str:
    """The lines of a table; ``words`` are the columns that do not hold numbers."""
    ends = ["---" if name in words else "--:" for name in header]
    return "\n".join([_line(header), f"|{'|'.join(ends)}|", *map(_line, rows)])


def markdown_cell(value: object) -> str:
    """One line that neither ends a table's cell nor is read as HTML."""
    return printable(" ".join(str(value).translate(_ESCAPES).split()))


class RawCell(str):
    """A cell that is Markdown already."""

    __slots__ = ()


def markdown_code(value: object) -> str:
    """A code span for a table's cell; it shows all signs as they are, line breaks as blanks."""
    text = printable(" ".join(str(value).replace("|", "\\|").split()))
    mark = "`" * (_longest(text) + 1)
    return f"{mark}{text}{mark}" if mark == "`" else f"{mark} {text} {mark}"


def fenced(language: str, text: str) -> str:
    """A block of code; nothing in it ends it."""
    mark, text = "`" * max(3, _longest(text) + 1), printable(text)
    return f"{mark}{language}\n{text}\n{mark}"


def _longest(text: str) -> int:
    """Backticks in a row."""
    return max(map(len, re.findall("`+", text)), default=0)


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(c if isinstance(c, RawCell) else markdown_cell(c) for c in cells)} |"
