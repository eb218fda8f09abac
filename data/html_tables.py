"""Tables of a page that are too wide for columns: each row of theirs becomes a line.

A table is shown as columns, each as wide as its widest cell, and a row as high as its highest. So blanks may be the
square of what stands in it: 2,000 short cells above one of 10,000 characters are 20 million characters, and so are
2,000 lines in the cell beside it. What a table would take is estimated before, from above, inner tables first::

    | <td>a<br>a<br>a | <td>long text |      3 lines of 1 + 9 characters, and 2 between them

Invariant: all tables together are shown in characters in proportion to the page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_MOST = 1_000_000
"""Characters of a table whose rows are a line each."""
_ROOM, _ROOM_TIMES = 2**22, 32
"""Characters of all tables, and more of them for each character of the page."""
_BETWEEN = 2
"""Blanks between columns."""
_CELLS = {"td", "th"}
_PARTS = {"thead", "tbody", "tfoot", "tr", *_CELLS}
TABLES = {"table", *_PARTS}
BREAKS = {
    "address", "article", "aside", "blockquote", "br", "center", "dd", "details", "dialog", "dir", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "layer", "legend", "li", "listing", "main", "menu", "nav", "ol", "optgroup", "option", "p", "plaintext", "pre",
    "search", "section", "summary", "ul", "xmp",
}  # fmt: skip
"""Elements before and after which a line ends, besides those of tables."""
_AS_WRITTEN = {"pre", "xmp", "listing", "plaintext"}


@dataclass(slots=True)
class _Box:
    """A cell, or what is around a table: how wide and high its text is at most."""

    width: int = 0
    height: int = 1
    line: int = 0

    def break_line(self) -> None:
        self.width, self.line = max(self.width, self.line), 0
        self.height += 1

    def write(self, text: str | None, as_written: bool) -> None:
        if not as_written:
            self.line += len(" ".join(text.split())) + 1 if text else 0
            return
        for number, line in enumerate((text or "").split("\n")):
            if number:
                self.break_line()
            self.line += len(line)

    def place(self, width: int, height: int) -> None:
        """A table stands for itself."""
        self.break_line()
        self.width = max(self.width, width)
        self.height += height


@dataclass(slots=True)
class _Table:
    element: Any
    rows: list[list[_Box]] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)

    def measured(self) -> tuple[int, int, int]:
        """Width, height, and the characters of rows that are a line each."""
        widths: list[int] = []
        for row in self.rows:
            widths += [0] * (len(row) - len(widths))
            for column, cell in enumerate(row):
                widths[column] = max(widths[column], cell.width + _BETWEEN)
        height = sum(max((cell.height for cell in row), default=1) for row in self.rows)
        return sum(widths), height, sum(widths) * len(self.rows)

    def undo(self) -> None:
        self.element.tag = "div"
        for part in self.parts:
            if part.tag in _CELLS:
                part.tail = f" {part.tail or ''}"
            part.tag = "span" if part.tag in _CELLS else "div"


def undo_wide_tables(tree: Any, page_characters: int) -> None:
    from lxml import etree

    walk = _Walk(_ROOM + _ROOM_TIMES * page_characters)
    for event, element in etree.iterwalk(tree, ("start", "end")):
        if isinstance(element.tag, str):
            walk.begin(element) if event == "start" else walk.end(element)
    for table in walk.wide:
        table.undo()


class _Walk:
    """Through a page, element by element; ``boxes`` are those that are open, ``tables`` as well."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._boxes, self._tables = [_Box()], list[_Table]()
        self._as_written = 0
        self.wide: list[_Table] = []

    def begin(self, element: Any) -> None:
        tag = element.tag
        if tag == "table":
            self._tables.append(_Table(element))
            self._boxes.append(_Box())  # text between its cells is shown before it
        elif self._tables and tag in _PARTS:
            self._begin_part(element)
        self._as_written += tag in _AS_WRITTEN
        self._break(tag)
        self._boxes[-1].write(element.text, self._as_written > 0)

    def _begin_part(self, element: Any) -> None:
        table = self._tables[-1]
        table.parts.append(element)
        if element.tag == "tr" or (element.tag in _CELLS and not table.rows):
            table.rows.append([])
        if element.tag in _CELLS:
            self._boxes.append(_Box())
            table.rows[-1].append(self._boxes[-1])

    def end(self, element: Any) -> None:
        self._break(element.tag)
        self._as_written -= element.tag in _AS_WRITTEN
        if element.tag == "table":
            self._end_table(self._tables.pop(), self._boxes.pop())
        elif self._tables and element.tag in _CELLS:
            self._boxes.pop().break_line()
        self._boxes[-1].write(element.tail, self._as_written > 0)

    def _break(self, tag: str) -> None:
        if tag in BREAKS:
            self._boxes[-1].break_line()

    def _end_table(self, table: _Table, around: _Box) -> None:
        width, height, of_lines = table.measured()
        wide = of_lines > _MOST or width * height > self._room
        if wide:
            self.wide.append(table)
            height = sum(cell.height for row in table.rows for cell in row)
        else:
            self._room -= width * height
        around.break_line()
        self._boxes[-1].place(max(width, around.width), height + around.height)
