"""PDFs that name a page or what is drawn on it again and again."""

import zlib

import pytest

from mem_agent.data import pdf_pages
from mem_agent.data.document_formats import DocumentError, read_document
from mem_agent.tests.helpers.document_files import pdf_bytes

FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
TREE = b"<</Type/Catalog/Pages 2 0 R>>"


def pdf(*objects: bytes) -> bytes:
    """Numbered from 1; the first is the root."""
    made, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    entries = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    table = b"xref\n0 %d\n0000000000 65535 f \n%btrailer<</Size %d/Root 1 0 R>>\n" % (
        len(objects) + 1, entries, len(objects) + 1)
    return made + table + b"startxref\n%d\n%%%%EOF" % len(made)


def kids(*numbers: int) -> bytes:
    return b"<</Type/Pages/Kids[%b]/Count %d>>" % (b" ".join(b"%d 0 R" % n for n in numbers), len(numbers))


def page(contents: bytes, fonts: bytes = b"/F 3 0 R") -> bytes:
    return (b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<</Font<<" + fonts + b">>>>/Contents " + contents
            + b">>")


def marks(text: str) -> bytes:
    drawn = b"BT /F 9 Tf (%b) Tj ET" % text.encode()
    return b"<</Length %d>>stream\n%b\nendstream" % (len(drawn), drawn)


EMPTY = b"<</Length 0>>stream\n\nendstream"
LETTERS = b"<</Length 36000>>stream\n%b\nendstream" % (b"1 beginbfchar <61> <0062> endbfchar " * 1000)
OWN_FONT = b"/F <</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 3 0 R>>"
NAMES = b"<</Font<<%b>>>>" % b"".join(b"/F%d 3 0 R" % number for number in range(4000))


@pytest.fixture
def drawn(monkeypatch):
    """The pages that are read."""
    from pypdf import PageObject

    read, text = [], PageObject.extract_text
    monkeypatch.setattr(PageObject, "extract_text", lambda self: read.append(self) or text(self))
    return read


def test_a_page_is_read_and_told_once(drawn):
    document = read_document("a.pdf", pdf(TREE, kids(*[4, 6] * 500), FONT, page(b"5 0 R"), marks("Ann"),
                                          page(b"7 0 R"), marks("Bob")))
    assert document.text.split() == ["Ann", "Bob"] and len(document.starts) == 1000 and len(drawn) == 2
    assert document.note == "998 of 1000 pages are others again, and told once"
    assert document.units(0, 3) == (1, 1) and document.units(5, 8) == (2, 2)


def test_a_scan_that_is_there_twice_is_a_scan():
    with pytest.raises(DocumentError, match=r"no text on its 2 page\(s\)"):
        read_document("a.pdf", pdf(TREE, kids(4, 4), FONT, page(b"5 0 R"), marks("")))


@pytest.mark.parametrize("objects", [
    (kids(4), FONT, page(b"[%b]" % (b"5 0 R " * 400)), marks("a" * 4000)),
    (kids(*range(5, 405)), FONT, marks("a" * 9000), *[page(b"4 0 R")] * 400),
    (kids(*range(6, 406)), FONT, b"[%b]" % (b"5 0 R " * 4000), EMPTY, *[page(b"4 0 R")] * 400),
    (kids(*range(5, 405)), FONT, b"[%b]" % (b"null " * 9000), *[page(b"4 0 R")] * 400),
    (kids(*range(5, 405)), LETTERS, marks("a"), *[page(b"4 0 R", OWN_FONT)] * 400),
    (kids(*range(6, 406)), FONT, marks("a"), NAMES, *[page(b"4 0 R", b"").replace(b"<</Font<<>>>>", b" 5 0 R")] * 400),
], ids=["in a page", "on many pages", "empty streams", "no streams", "letters of fonts", "names"])
def test_marks_are_not_drawn_without_end(objects, drawn, monkeypatch):
    monkeypatch.setattr(pdf_pages, "_AGAIN", 2**18)
    with pytest.raises(DocumentError, match=r"a\.pdf: page \d+ draws again and again what was drawn before; print it"):
        read_document("a.pdf", pdf(TREE, *objects))
    assert len(drawn) < 200


def test_a_letterhead_may_be_drawn_on_each_page_and_twice():
    objects = [page(b"[4 0 R %d 0 R 4 0 R]" % (n + 1)) if n % 2 else marks(f"page {n}") for n in range(5, 205)]
    content = pdf(TREE, kids(*range(5, 205, 2)), FONT, marks("Head of a letter. " * 10), *objects)
    text = read_document("a.pdf", content).text
    assert text.count("Head") == 2 * 100 * 10 and "page 6" in text and "page 204" in text


def test_a_letterhead_of_many_lines_may_be_on_each_of_a_thousand_pages(monkeypatch):
    from pypdf import PageObject

    monkeypatch.setattr(PageObject, "extract_text", lambda self: "Dear customer")  # else two minutes
    lines = zlib.compress(b"10 10 m 90 90 l S\n" * 5700)
    head = b"<</Filter/FlateDecode/Length %d>>stream\n%b\nendstream" % (len(lines), lines)
    objects = [page(b"[4 0 R %d 0 R]" % (n + 1)) if n % 2 else marks(f"page {n}") for n in range(5, 2005)]
    content = pdf(TREE, kids(*range(5, 2005, 2)), FONT, head, *objects)
    assert len(read_document("a.pdf", content).starts) == 1000


def test_what_programs_write_draws_nothing_again(monkeypatch):
    monkeypatch.setattr(pdf_pages, "_AGAIN", 0)
    assert read_document("a.pdf", pdf_bytes([["Ann."], ["Bob."], ["Eve."]])).text.split() == ["Ann.", "Bob.", "Eve."]


@pytest.mark.parametrize("rest", [b"", b"/DescendantFonts[5]"], ids=["a font", "none that can be parsed"])
def test_a_font_is_parsed_once_on_however_many_pages(rest, monkeypatch):
    """So that a book in a font of thousands of letters is read, and takes no more than its text."""
    from pypdf import _cmap

    parsed, parse = [], _cmap.prepare_cm
    monkeypatch.setattr(_cmap, "prepare_cm", lambda font: parsed.append(font) or parse(font))
    font = b"<</Type/Font/Subtype/Type0/BaseFont/A/Encoding/Identity-H/ToUnicode 4 0 R%b>>" % rest
    pages = [page(b"%d 0 R" % (number + 1)) if number % 2 else marks(f"a{number}") for number in range(5, 405)]
    text = read_document("a.pdf", pdf(TREE, kids(*range(5, 405, 2)), font, LETTERS, *pages)).text
    assert len(parsed) == 1 and len(text.split("\n\n")) == 200


def test_a_book_in_many_fonts_is_read():
    fonts = b"".join(b"/F%d 3 0 R" % number for number in range(50))
    pages = [page(b"%d 0 R" % (number + 1), b"/F 3 0 R" + fonts) if number % 2 else marks("word " * 30)
             for number in range(5, 1005)]
    text = read_document("a.pdf", pdf(TREE, kids(*range(5, 1005, 2)), FONT, b"null", *pages)).text
    assert text.count("word") == 15_000
