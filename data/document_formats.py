"""The text of one file as people keep it, with the places in it that people can look up.

=========  ===========================================  ==========================================
kind       known by                                     counted in
=========  ===========================================  ==========================================
PDF        its first bytes, or nearly the first         pages
Word       its first bytes, and what the archive holds  paragraphs; a row of a table is one
HTML       ``.html`` ``.htm`` ``.xhtml``, or its start  paragraphs as a browser shows them
text       anything else that is text                   lines
=========  ===========================================  ==========================================

A document is text and the offset at which each page, paragraph or line begins::

    text "Ann is.\\nShe was.\\n", unit line, starts [0, 8]        offsets 9 to 12 lie in line 2

Invariants:
- text has no carriage returns, NUL characters or halves of characters, and is never empty;
- a file that is no document, or whose text cannot be had (encrypted, scanned, damaged), is one DocumentError;
- nothing of a file is run or fetched, and what it unpacks to is bounded like its own size.
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..system.errors import MemAgentError
from .guessed_encoding import guessed
from .html_pages import page_text
from .pdf_pages import DrawnAgain, pdf_pages
from .word_archive import TooLarge, body_xml
from .word_paragraphs import word_paragraphs


class DocumentError(MemAgentError):
    """A file or folder that gives no text; one line."""


class Unit(StrEnum):
    """What places in a document are counted in."""

    LINE = "line"
    PAGE = "page"
    PARAGRAPH = "paragraph"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is refused instead of being read for ever."""

    file_bytes: int = 2**28
    """Of a file."""
    xml_bytes: int = 2**26
    """Of what a Word document's body unpacks to: a parser takes ten times that."""
    characters: int = 2**28
    """Of text, all files together."""
    files: int = 10_000


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text. ``starts`` has the offset of every line, page or paragraph, in order."""

    name: str
    text: str
    unit: Unit
    starts: Sequence[int]
    note: str = ""
    """What people should know about how it was read."""

    def units(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last unit, from 1, of characters ``start`` up to ``end``."""
        first = max(1, bisect_right(self.starts, start))
        return first, max(first, bisect_right(self.starts, max(start, end - 1)))


ORDINARY = Limits()
_REASON = 200
"""Characters of what a library says about a file."""
_ARCHIVE = b"PK\x03\x04"


def read_document(name: str, content: bytes, limits: Limits = ORDINARY) -> Document:
    """The document in the bytes of a file.

    Raises:
        DocumentError: it has no text, or none that can be read here.
    """
    if len(content) > limits.file_bytes:
        raise DocumentError(f"{name}: more than {limits.file_bytes // 2**20} MiB; split it")
    if _is_pdf(content):
        return _pdf(name, content, limits)
    if content.startswith(_ARCHIVE):
        return _word(name, content, limits)
    if content.startswith(b"{\\rtf"):
        raise DocumentError(f"{name}: RTF is not read; save it as .docx, PDF or text")
    text, encoding = _decoded(name, content)
    if _is_page(name, text):
        return _by_lines(name, _page(name, text), Unit.PARAGRAPH, _said(encoding), limits)
    return _by_lines(name, text, Unit.LINE, _said(encoding), limits)


def is_plain(name: str, content: bytes) -> bool:
    """Whether it is text in UTF-8 of which nothing is parsed: reading it takes no more than its length says."""
    first = next(_encodings(name, content))
    if _is_pdf(content) or content.startswith(_ARCHIVE) or codecs.lookup(first).name != "utf-8":
        return False
    try:
        return not _is_page(name, content.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError:
        return False


# --- text and HTML ---------------------------------------------------------------------------------------------------
_HTML_START = re.compile(
    r"\s*+(<\?xml[^>]*+>\s*+)?(<!--(?:(?!-->).)*+-->\s*+)*+<(!doctype\s+html|html)\b", re.I | re.S
)
_DECLARED = re.compile(rb"<(?:meta|\?xml)\b[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.I)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
"""Longest first where one begins like another."""
_PLAIN = ("utf-8", "utf-8-sig", "ascii")
_NO_PAGES = ("punycode", "idna", "unicode-escape", "raw-unicode-escape", "utf-7")
"""Python's, by the names that its codecs have, which no browser knows. Punycode takes the square of the length, alone
among the codecs."""
_WIDER = {
    "iso8859-1": "cp1252", "iso8859-9": "cp1254", "tis-620": "cp874", "gb2312": "gb18030", "gbk": "gb18030",
    "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
"""What browsers read for it: the same and more, which pages that name the former are full of."""
_HEAD = 4096
"""Bytes in which an encoding is named."""


def _decoded(name: str, content: bytes) -> tuple[str, str]:
    """Text and its encoding: what a mark says, or the page itself, or UTF-8, else the likeliest."""
    marked = next((encoding for mark, encoding in _MARKS if content.startswith(mark)), "")
    if not marked and b"\0" in content[: 2**16]:
        raise DocumentError(f"{name}: not a text, PDF, HTML or Word file")
    for encoding in filter(None, (marked, *_encodings(name, content))):
        try:
            return content.decode(encoding), encoding.lower()
        except ValueError:  # a page may name an encoding that is not its own
            continue
    if found := guessed(content):
        return found
    raise DocumentError(f"{name}: neither text in a known encoding nor a PDF, HTML or Word file")


def _encodings(name: str, content: bytes) -> Iterator[str]:
    """To be tried in this order: a page and XML say what they are written in, any other text may be about pages."""
    head = content[:_HEAD].decode("latin-1")
    if not (_is_page(name, head) or head.lstrip().startswith("<?xml")):
        yield "utf-8"
    if told := _told_encoding(content):
        yield from filter(None, (_WIDER.get(codecs.lookup(told).name), told))
    yield "utf-8"


def _told_encoding(content: bytes) -> str:
    """That a page names itself, if Python has it and browsers do. Python looks a codec up by what is left of its name
    without punctuation. One in which the name could not stand there, as UTF-16, is not the page's."""
    named = _DECLARED.search(content[:_HEAD])
    told = named[1].decode() if named else ""
    try:
        known = codecs.lookup(told).name.replace("_", "-") not in _NO_PAGES
        return told if known and b"<meta charset>".decode(told) == "<meta charset>" else ""
    except (LookupError, ValueError):
        return ""


def _is_page(name: str, text: str) -> bool:
    return name.lower().endswith((".html", ".htm", ".xhtml")) or _HTML_START.match(text) is not None


def _said(encoding: str) -> str:
    return "" if encoding in _PLAIN else f"read as {encoding}"


def _page(name: str, page: str) -> str:
    try:
        return page_text(page)
    except RecursionError:
        raise DocumentError(f"{name}: HTML that is nested too deeply") from None
    except Exception as error:  # the parser's, and of odd attributes what the library stumbles over
        raise DocumentError(f"{name}: not readable as HTML ({_told(error)})") from None


def _by_lines(name: str, text: str, unit: Unit, note: str, limits: Limits) -> Document:
    """A document whose units are lines, or the lines with something on them."""
    text = _clean(text)
    _check(name, text, limits)
    pattern = r"^" if unit is Unit.LINE else r"^(?=.*\S)"
    starts = array("Q", (line.start() for line in re.finditer(pattern, text, re.M)))
    return Document(name, text, unit, starts, note)


# --- PDF -------------------------------------------------------------------------------------------------------------
def _is_pdf(content: bytes) -> bool:
    """Something may stand before it, which a reader passes over; in a text it may be a word of it."""
    before, found, _ = content[:1024].partition(b"%PDF-")
    if not before.removeprefix(codecs.BOM_UTF8).strip(b"\0 \t\r\n\f") or not found:
        return bool(found)
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return False


def _pdf(name: str, content: bytes, limits: Limits) -> Document:
    pages: list[str] = []
    again = characters = 0
    for page in _pdf_pages(name, content):
        again += page is None
        pages.append(_clean(page or "").strip("\n"))
        characters += len(pages[-1])
        if characters > limits.characters:
            break
    text = "\n\n".join(pages)
    blank = sum(not page.strip() for page in pages) - again
    if blank == len(pages) - again:
        raise DocumentError(f"{name}: no text on its {len(pages)} page(s), a scan perhaps; run OCR over it first")
    _check(name, text, limits)
    starts = array("Q")
    at = 0
    for page in pages:
        starts.append(at)
        at += len(page) + 2
    notes = (f"{blank} of {len(pages)} pages hold no text; scans need OCR first" if blank else "",
             f"{again} of {len(pages)} pages are others again, and told once" if again else "")
    return Document(name, text, Unit.PAGE, starts, "; ".join(filter(None, notes)))


def _pdf_pages(name: str, content: bytes) -> Iterator[str | None]:
    from pypdf.errors import FileNotDecryptedError

    number = 0
    try:
        for text in pdf_pages(content):
            number += 1
            yield text()
    except FileNotDecryptedError:
        raise DocumentError(f"{name}: encrypted; save it without a password first") from None
    except DrawnAgain:
        told = f"{name}: page {number} draws again and again what was drawn before"
        raise DocumentError(f"{told}; print it to a new PDF") from None
    except Exception as error:  # of a damaged file, anything: KeyError, RecursionError and AttributeError among them
        where = f"page {number}" if number else "the file"
        raise DocumentError(f"{name}: {where} cannot be read ({_told(error)})") from None


# --- Word ------------------------------------------------------------------------------------------------------------
def _word(name: str, content: bytes, limits: Limits) -> Document:
    most = min(limits.file_bytes, limits.xml_bytes)
    try:
        xml = body_xml(content, most)
    except TooLarge:
        told = f"{name}: unpacks to more than {most // 2**20} MiB of text with its marks; split it"
        raise DocumentError(told) from None
    except Exception as error:  # BadZipFile, and of names and versions that are none what reading them raises
        raise DocumentError(f"{name}: a damaged archive ({_told(error)})") from None
    if xml is None:
        raise DocumentError(f"{name}: an archive, and no Word document; unpack it")
    try:
        text = _at_most(limits.characters, (" ".join(line.split()) for line in word_paragraphs(xml)))
    except Exception as error:  # of damaged XML the parser's
        raise DocumentError(f"{name}: not readable as a Word document ({_told(error)})") from None
    return _by_lines(name, text, Unit.PARAGRAPH, "", limits)


def _at_most(characters: int, paragraphs: Iterable[str]) -> str:
    """Lines, and no more of them than show that there are more characters."""
    lines: list[str] = []
    for paragraph in filter(None, paragraphs):
        lines.append(paragraph)
        characters -= len(paragraph)
        if characters < 0:
            break
    return "\n".join(lines)


# --- all kinds -------------------------------------------------------------------------------------------------------
def _told(error: Exception) -> str:
    """On one line, whatever of the file a library quotes: a name in it may have millions of letters."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.{_REASON}}"


def _clean(text: str) -> str:
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _check(name: str, text: str, limits: Limits) -> None:
    if not text.strip():
        raise DocumentError(f"{name}: holds no text")
    if len(text) > limits.characters:
        raise DocumentError(f"{name}: more than {limits.characters:,} characters of text; ask about a part of it")
