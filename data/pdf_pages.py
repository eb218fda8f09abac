"""The text of a PDF's pages, each page, each stream of marks and each font once.

A page is a name in a list, and so are the streams that are drawn on it and the fonts that these are drawn in. A list
may name one again and again, and so may all pages::

    /Kids [3 0 R 3 0 R 3 0 R ...]        six bytes each, for a page each
    /Font <</F 4 0 R>>                   on each page, for a font that takes seconds to parse

Invariant: time is in proportion to the file and what its streams unpack to. A page that was there before is not read
again, nor is a font; what else pages share, as letterheads are, may be read again up to a bound, and then the file is
refused.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PageObject

_AGAIN, _AGAIN_TIMES = 2**27, 16
"""Bytes that were read before, and more of them for each byte of the file. A letterhead unpacks to some 100 KB and is
on each of a thousand pages. A second is enough for 1 MiB of its lines, 0.35 of the slowest marks and 2 of a font or of
names (one core of an EPYC): they end after two minutes, and six, within what a process may take."""
_EACH, _ENTRY = 64, 16
"""Bytes that something is counted as that is read again, besides its own, and an entry of a list."""
_READ = ("/ToUnicode", "/Encoding", "/Differences", "/DescendantFonts", "/W", "/Widths", "/CharProcs")
"""Of a font, what the library reads for text."""
_DEEPEST = 4
"""A list of widths, in the list of them, of the font within one."""


class DrawnAgain(Exception):
    """The same marks, more often than any document of people needs them."""


def pdf_pages(content: bytes) -> Iterator[Callable[[], str | None]]:
    """What gives each page's text, in order: None if the page was there before.

    Both raise of a damaged file anything, and the second DrawnAgain.
    """
    from pypdf import PdfReader

    _parse_fonts_once()
    parts, told = _Parts(_AGAIN + _AGAIN_TIMES * len(content)), set[Any]()
    for page in PdfReader(io.BytesIO(content)).pages:
        yield partial(_text, page, parts, told)


def _text(page: PageObject, parts: _Parts, told: set[Any]) -> str | None:
    if page.indirect_reference in told:
        return None
    if page.indirect_reference is not None:
        told.add(page.indirect_reference)
    parts.draw(page)
    return page.extract_text()


def _parse_fonts_once() -> None:
    """The library parses a font anew for each page that names it. What comes of it is kept with the font, if the
    library still has the place for that: what is parsed is the same either way."""
    with suppress(ImportError, AttributeError):
        from pypdf.generic._font import Font

        parse = Font.from_font_resource
        if not hasattr(parse, "once"):
            Font.from_font_resource = _Once(parse)  # type: ignore[assignment,method-assign]


class _Once:
    """``parse``, whose outcome is an attribute of what is parsed."""

    once = "_parsed_once"

    def __init__(self, parse: Callable[[Any], Any]) -> None:
        self._parse = parse

    def __call__(self, font: Any) -> Any:
        known = getattr(font, self.once, None)
        if known is None:
            try:
                known = self._parse(font)
            except Exception as error:
                known = error
            setattr(font, self.once, known)
        if isinstance(known, Exception):
            raise known.with_traceback(None)
        return known


class _Parts:
    """All that was read; ``again``: bytes that may be read another time."""

    def __init__(self, again: int) -> None:
        self._again = again
        self._known: dict[int, Any] = {}

    def draw(self, page: PageObject) -> None:
        """What a page names: a stream or a list of some, and fonts. Raises DrawnAgain."""
        contents = _held(page.get("/Contents"))
        for stream in contents if isinstance(contents, list) else [contents]:
            self._name(stream, 0)
        resources = _held(page.get("/Resources"))
        fonts = _held(resources.get("/Font")) if isinstance(resources, dict) else None
        for font in fonts.values() if isinstance(fonts, dict) else ():
            self._name(font, _DEEPEST, kept=True)

    def _name(self, part: Any, deep: int, kept: bool = False) -> None:
        held = _held(part)
        if isinstance(held, list | dict) and not (kept and id(held) in self._known):
            self._read(held, deep)
        else:
            self._count(_ENTRY)

    def _read(self, part: Any, deep: int, again: bool = False) -> None:
        """All of what was there before is counted, of anything else what is in it and was there."""
        again = again or id(part) in self._known
        if again:
            self._count(_EACH + (len(part.get_data()) if hasattr(part, "get_data") else _ENTRY * len(part)))
        self._known[id(part)] = part
        inner = part if isinstance(part, list) else [part.get(key) for key in _READ]
        for one in map(_held, inner) if deep else ():
            if isinstance(one, list | dict):
                self._read(one, deep - 1, again)

    def _count(self, size: int) -> None:
        self._again -= size
        if self._again < 0:
            raise DrawnAgain


def _held(named: Any) -> Any:
    return None if named is None else named.get_object()
