"""The paragraphs of a Word document's body; a row of a table is one.

A cell that spans columns is told once, and one that spans rows in each of them if it is short, since a row is read
alone::

    | Rome | Ann  | silver |        Rome | Ann | silver
    |      | Bob  | gold   |        Rome | Bob | gold
    |   nobody else |      |        Rome | nobody else | ...

Invariant: each cell of the file is read once, and text is in proportion to its XML: how many columns a cell spans is a
number, and whatever a cell of rows repeats has fewer characters than the marks that say so.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docx.table import Table

_SHORT = 64
"""Characters; ``<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc>`` has 50."""


def word_paragraphs(content: bytes) -> Iterator[str]:
    """Raises of a damaged file those of zip, XML and of the library's own lookups."""
    import docx
    from docx.table import Table

    for block in docx.Document(io.BytesIO(content)).iter_inner_content():
        if isinstance(block, Table):
            yield from _rows(block)
        else:
            yield block.text


def _rows(table: Table) -> Iterator[str]:
    from docx.table import _Cell

    above: dict[int, str] = {}
    """Of each column, what a cell that goes on below it repeats."""
    for row in table._tbl.tr_lst:
        column, texts, here = row.grid_before, [], {}
        for cell in row.tc_lst:
            goes_on = cell.vMerge == "continue" and column in above
            text = above[column] if goes_on else _Cell(cell, table).text
            texts.append(text)
            here[column] = text if len(text) <= _SHORT else ""
            column += cell.grid_span
        above = here
        yield " | ".join(texts)
