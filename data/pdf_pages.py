"""The text of a PDF's pages, each page and each stream of marks once.

A page is a name in a list, and so are the streams that are drawn on it. A list may name one again and again::

    /Kids [3 0 R 3 0 R 3 0 R ...]        six bytes each, for a page each

Invariant: time is in proportion to the file and what its streams unpack to. A page that was there before is not read
again; streams that pages share, as letterheads are, may be drawn again up to a bound, and then the file is refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PageObject

_AGAIN, _AGAIN_TIMES = 2**18, 16
"""Bytes of streams that were drawn before, and more of them for each byte of the file."""


class DrawnAgain(Exception):
    """The same marks, more often than any document of people needs them."""


def pdf_pages(content: bytes) -> Iterator[Callable[[], str | None]]:
    """What gives each page's text, in order: None if the page was there before.

    Both raise of a damaged file anything, and the second DrawnAgain.
    """
    from pypdf import PdfReader

    streams, told = _Streams(_AGAIN + _AGAIN_TIMES * len(content)), set[Any]()
    for page in PdfReader(io.BytesIO(content)).pages:
        yield partial(_text, page, streams, told)


def _text(page: PageObject, streams: _Streams, told: set[Any]) -> str | None:
    if page.indirect_reference in told:
        return None
    if page.indirect_reference is not None:
        told.add(page.indirect_reference)
    streams.draw(page.get("/Contents"))
    return page.extract_text()


class _Streams:
    """All that were drawn; ``again``: bytes that may be drawn another time."""

    def __init__(self, again: int) -> None:
        self._again = again
        self._drawn: dict[int, Any] = {}

    def draw(self, contents: Any) -> None:
        """What a page names, a stream or a list of some. Raises DrawnAgain."""
        from pypdf.generic import ArrayObject, StreamObject

        held = None if contents is None else contents.get_object()
        for part in held if isinstance(held, ArrayObject) else [held]:
            stream = None if part is None else part.get_object()
            if not isinstance(stream, StreamObject):
                continue
            if id(stream) in self._drawn:
                self._again -= len(stream.get_data())
            if self._again < 0:
                raise DrawnAgain
            self._drawn[id(stream)] = stream
