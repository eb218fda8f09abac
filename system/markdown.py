"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", "|": "\\|"})


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], words: Collection[str] = ()) -> str:
    """The lines of a table; ``words`` are the columns that do not hold numbers."""
    ends = ["---" if name in words else "--:" for name in header]
    return "\n".join([_line(header), f"|{'|'.join(ends)}|", *map(_line, rows)])


def markdown_cell(value: object) -> str:
    """One line that neither ends a table's cell nor is read as HTML."""
    return " ".join(str(value).translate(_ESCAPES).split())


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(markdown_cell, cells))} |"
