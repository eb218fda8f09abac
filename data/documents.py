"""The text of files and folders that people ask about, and the way back from a place in it to a file.

=========  ====================================================  ==========================================
kind       known by                                              counted in
=========  ====================================================  ==========================================
PDF        its first bytes                                       pages
Word       its first bytes, those of an archive                  paragraphs; a row of a table is one
HTML       ``.html`` ``.htm`` ``.xhtml``; without a suffix, by   paragraphs as a browser shows them
           its start
text       anything else                                         lines
=========  ====================================================  ==========================================

A document is text and the offset at which each page, paragraph or line begins; several are one text::

    read_documents(["notes/", "paper.pdf"])

    notes/a.txt          a heading, where there are several documents
    Ann lives in ...     its text
                         a blank line
    notes/b.html
    ...

    documents.places(0, 40) -> notes/a.txt, lines 1-2

A folder is read whole, in the order of its paths with numbers as numbers (``part 2`` before ``part 10``), except what
is hidden; what holds no text is skipped, and ``skipped`` says so. ``-`` is standard input.
"""

from __future__ import annotations

import io
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ..system.errors import MemAgentError, reason_of

_BETWEEN = "\n\n"
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")
_PAGE_START = re.compile(r"\s*(<\?xml[^>]*>\s*)?<(!doctype\s+html|html)\b", re.I)
_DECLARED = re.compile(rb"<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.I)
_MARKED = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
LINE, PAGE, PARAGRAPH = "line", "page", "paragraph"


class DocumentError(MemAgentError):
    """A file or folder that gives no text."""


class Document(NamedTuple):
    """A file's text. ``starts`` has the offset of every line, page or paragraph, whatever ``unit`` is, in order."""

    name: str
    text: str
    unit: str
    starts: Sequence[int]
    note: str = ""
    """What people should know about how it was read."""

    def units(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last unit, from 1, of characters ``start`` up to ``end``."""
        first = max(1, bisect_right(self.starts, start))
        return first, max(first, bisect_right(self.starts, max(start, end - 1)))


@dataclass(frozen=True, slots=True)
class Place:
    """Lines, pages or paragraphs ``first`` to ``last`` of a file."""

    document: str
    unit: str
    first: int
    last: int

    def __str__(self) -> str:
        numbers = f"{self.unit} {self.first}" if self.first == self.last else f"{self.unit}s {self.first}-{self.last}"
        return f"{self.document}, {numbers}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part of a folder that was not read."""

    name: str
    reason: str


class Documents:
    """All documents of a question, as one text."""

    def __init__(self, documents: Sequence[Document], skipped: Sequence[Skipped] = ()) -> None:
        self.documents, self.skipped = tuple(documents), tuple(skipped)
        headings = [f"{document.name}\n" if len(self.documents) > 1 else "" for document in self.documents]
        pieces = [heading + document.text for heading, document in zip(headings, self.documents, strict=True)]
        self.text = _BETWEEN.join(pieces)
        ends = accumulate((len(piece) + len(_BETWEEN) for piece in pieces), initial=0)
        self._starts = [end + len(heading) for end, heading in zip(ends, headings, strict=False)]

    def places(self, start: int, end: int) -> tuple[Place, ...]:
        """Where characters ``start`` up to ``end`` of the text came from, one for each file they touch."""
        found = []
        for number in range(max(0, bisect_right(self._starts, start) - 1), bisect_left(self._starts, end)):
            at, document = self._starts[number], self.documents[number]
            first, last = max(start, at), min(end, at + len(document.text))
            if first < last:
                found.append(Place(document.name, document.unit, *document.units(first - at, last - at)))
        return tuple(found)


def read_documents(paths: Sequence[str]) -> Documents:
    """All documents that ``paths`` name, each once.

    Raises:
        DocumentError: one of them gives no text, or all together do.
        OSError: one of them cannot be opened.
    """
    documents: dict[Path, Document] = {}
    skipped: list[Skipped] = []
    for path in paths:
        if path == "-":
            documents[Path(path)] = read_document("standard input", sys.stdin.buffer.read())
            continue
        is_folder = Path(path).is_dir()
        for file in _files(Path(path)) if is_folder else [Path(path)]:
            try:
                documents.setdefault(file.resolve(), read_document(str(file), file.read_bytes()))
            except (DocumentError, OSError) as error:
                if not is_folder:
                    raise
                skipped.append(Skipped(str(file), str(error).removeprefix(f"{file}: ")))
    if not documents:
        why = f"; {skipped[0].name} was skipped: {skipped[0].reason}" if skipped else ""
        raise DocumentError(f"{', '.join(paths)}: no documents{why}")
    return Documents(tuple(documents.values()), skipped)


def _files(folder: Path) -> Iterator[Path]:
    """The files below ``folder`` that are not hidden, in order, numbers as numbers."""

    def order(path: Path) -> list[list[str | int]]:
        parts = (re.split(r"(\d+)", part) for part in path.parts)
        return [[int(word) if word.isdecimal() else word for word in part] for part in parts]

    for path in sorted(folder.rglob("*"), key=order):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


def read_document(name: str, content: bytes) -> Document:
    """The document in the bytes of a file. Raises DocumentError: it has no text, or none that can be read here."""
    if content[:1024].lstrip(b"\xef\xbb\xbf\0 \t\r\n").startswith(b"%PDF-"):
        return _pdf(name, content)
    if content.startswith(b"PK\x03\x04"):
        return _by_lines(name, _word(name, content), PARAGRAPH)
    if content.startswith(b"{\\rtf"):
        raise DocumentError(f"{name}: RTF is not read; save it as .docx, PDF or text")
    text, encoding = _decoded(name, content)
    note = "" if encoding in ("utf-8", "utf-8-sig", "ascii") else f"read as {encoding}"
    if _is_page(name, text):
        return _by_lines(name, _page(name, text), PARAGRAPH, note)
    return _by_lines(name, text, LINE, note)


def _is_page(name: str, text: str) -> bool:
    suffix = Path(name).suffix.lower()
    return suffix in _PAGE_SUFFIXES or (not suffix and _PAGE_START.match(text) is not None)


def _decoded(name: str, content: bytes) -> tuple[str, str]:
    """Text and its encoding: what its mark or the page itself says, or UTF-8, else the likeliest."""
    from chardetng_py import detect

    declared = _DECLARED.search(content[:4096]) if _is_page(name, content[:4096].decode("latin-1")) else None
    marked = next((encoding for mark, encoding in _MARKED.items() if content.startswith(mark)), "")
    if marked or b"\0" not in content[: 2**16]:
        for encoding in filter(None, (marked, declared and declared[1].decode(), "utf-8", detect(content).lower())):
            try:
                return content.decode(encoding), encoding.lower()
            except (ValueError, LookupError):  # a page may name an encoding that is not its own
                continue
    raise DocumentError(f"{name}: not a text, PDF, HTML or Word file")


def _page(name: str, page: str) -> str:
    """What a browser shows, under the page's title."""
    from inscriptis import Inscriptis
    from lxml import etree, html

    try:
        tree = html.document_fromstring(re.sub(r"^\s*<\?xml[^>]*>", "", page))
        shown = Inscriptis(tree).get_text()
    except (etree.LxmlError, RecursionError) as error:
        raise DocumentError(f"{name}: not readable as HTML ({reason_of(error)})") from None
    title = " ".join((tree.findtext(".//title") or "").split())
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in shown.splitlines()).strip("\n"))
    return text if text.lstrip().startswith(title) else f"{title}\n\n{text}"


def _word(name: str, content: bytes) -> str:
    import mammoth

    try:
        html = mammoth.convert_to_html(io.BytesIO(content), convert_image=mammoth.images.img_element(lambda _: {}))
    except Exception as error:  # a damaged archive or its XML: what zipfile and the parser happen to raise
        raise DocumentError(f"{name}: not readable as a Word document ({reason_of(error)})") from None
    return _page(name, html.value) if html.value else ""


def _pdf(name: str, content: bytes) -> Document:
    from pypdf import PdfReader

    try:
        pages = [_clean(page.extract_text()).strip("\n") for page in PdfReader(io.BytesIO(content)).pages]
    except Exception as error:  # encrypted or damaged: pypdf's own, KeyError, RecursionError and AttributeError
        raise DocumentError(f"{name}: cannot be read ({reason_of(error)})") from None
    blank = sum(not page.strip() for page in pages)
    if blank == len(pages):
        raise DocumentError(f"{name}: no text on its {len(pages)} page(s), a scan perhaps; run OCR over it first")
    starts = [0, *accumulate(len(page) + len(_BETWEEN) for page in pages[:-1])]
    note = f"{blank} of {len(pages)} pages hold no text; scans need OCR first" if blank else ""
    return Document(name, _BETWEEN.join(pages), PAGE, starts, note)


def _by_lines(name: str, text: str, unit: str, note: str = "") -> Document:
    """A document whose units are lines, or the lines with something on them."""
    text = _clean(text)
    if not text.strip():
        raise DocumentError(f"{name}: holds no text")
    starts = [line.start() for line in re.finditer(r"^" if unit == LINE else r"^(?=.*\S)", text, re.M)]
    return Document(name, text, unit, starts, note)


def _clean(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
