"""Text for people: one line of it, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", "|": "\\|"})


def one_line(text: str, most: int | None = None) -> str:
    """The text on one line, cut to ``most`` characters if given."""
    line = " ".join(text.split())
    return line if most is None or len(line) <= most else line[: most - 1].rstrip() + "…"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]], words: Collection[str] = ()) -> str:
    """The lines of a table; ``words`` are the columns that do not hold numbers."""
    ends = ["---" if name in words else "--:" for name in header]
    return "\n".join([_line(header), f"|{'|'.join(ends)}|", *map(_line, rows)])


def markdown_cell(value: object) -> str:
    """One line that neither ends a table's cell nor is read as HTML."""
    return " ".join(str(value).translate(_ESCAPES).split())


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(markdown_cell, cells))} |"
