"""The paragraphs of a Word document's body; a row of a table is one.

All text that Word shows there, whatever stands around it: insertions that somebody has still to accept, controls of a
form, fields, links, text boxes. What was deleted or moved away is none, nor what is there again for older programs. A
text box stands behind the paragraph that it hangs on, the rows of a table within a cell are told there:
``Rome | Ann, silver; Bob, gold``.

A cell that spans columns is told once, and one that spans rows in each of them if it is short, since a row is read
alone::

    | Rome | Ann  | silver |        Rome | Ann | silver
    |      | Bob  | gold   |        Rome | Bob | gold
    |   nobody else |      |        Rome | nobody else | ...

Marks are known by their names without a namespace: of these there is one for Word's own files and one for "strict"
ones.

Invariant: each cell of the file is read once, and text is in proportion to its XML: how many columns a cell spans is a
number, and whatever a cell of rows repeats has fewer characters than the marks that say so. How deep tables lie in
cells is bounded by the XML parser, which reads 256 levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_SHORT = 64
"""Characters; ``<w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc>`` has 50."""
_UNREAD = {
    "del", "moveFrom", "Fallback",
    "rt",  # how a word is spoken, above it
    "pPr", "rPr", "tblPr", "trPr", "tcPr", "sdtPr",  # a ``w:tab`` there is a place on the ruler
}  # fmt: skip
_BLOCKS = {"p", "tbl"}
_WRITTEN = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_LONGEST_NUMBER = 9
"""Digits."""


def word_paragraphs(xml: bytes) -> Iterator[str]:
    """Of the part of a file that has its body. Raises lxml.etree.XMLSyntaxError, and MemoryError."""
    for body in _nearest(parsed(xml), {"body"}):
        for block in _nearest(body, _BLOCKS):
            if _name(block) == "p":
                yield _paragraph(block)
            else:
                yield from map(" | ".join, _rows(block))


def parsed(xml: bytes) -> Any:
    """Of any part of the file. Raises as ``word_paragraphs``."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        return etree.fromstring(xml, parser)
    except etree.XMLSyntaxError as error:
        if error.code == etree.ErrorTypes.ERR_NO_MEMORY:  # what it says itself is "unknown error"
            raise MemoryError from None
        raise


def _nearest(parent: Any, wanted: set[str]) -> Iterator[Any]:
    """The elements of these names below ``parent``, none within another of them and none that is not to be read."""
    open_ones = [iter(parent)]
    while open_ones:
        element = next(open_ones[-1], None)
        if element is None:
            open_ones.pop()
        elif (name := _name(element)) in wanted:
            yield element
        elif name not in _UNREAD:
            open_ones.append(iter(element))


def _name(element: Any) -> str:
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def _paragraph(paragraph: Any) -> str:
    pieces, boxes = [], []
    for element in _nearest(paragraph, {"t", *_WRITTEN, *_BLOCKS}):
        name = _name(element)
        if name in _BLOCKS:
            boxes.append(_block(element))
        else:
            pieces.append(_WRITTEN[name] if name in _WRITTEN else element.text or "")
    return "\n".join(["".join(pieces), *boxes])


def _block(block: Any) -> str:
    """Within a cell or a text box, where a table is no rows of the document's own."""
    if _name(block) == "p":
        return _paragraph(block)
    return "; ".join(", ".join(filter(str.strip, row)) for row in _rows(block))


def _rows(table: Any) -> Iterator[list[str]]:
    above: dict[int, str] = {}
    """Of each column, what a cell that goes on below it repeats."""
    for row in _nearest(table, {"tr"}):
        column, texts, here = _number(_property(row, "trPr", "gridBefore"), 0), [], {}
        for cell in _nearest(row, {"tc"}):
            goes_on = _property(cell, "tcPr", "vMerge") in ("", "continue") and column in above
            text = above[column] if goes_on else "\n".join(map(_block, _nearest(cell, _BLOCKS)))
            texts.append(text)
            here[column] = text if len(text) <= _SHORT else ""
            column += _number(_property(cell, "tcPr", "gridSpan"), 1)
        above = here
        yield texts


def _property(element: Any, properties: str, name: str) -> str | None:
    """Its value; empty where it has none, None where there is no such property."""
    for part in element:
        if _name(part) == properties:
            for one in part:
                if _name(one) == name:
                    return next((str(value) for key, value in one.items() if key.endswith("}val")), "")
    return None


def _number(told: str | None, otherwise: int) -> int:
    return int(told) if told and len(told) <= _LONGEST_NUMBER and told.isascii() and told.isdecimal() else otherwise
