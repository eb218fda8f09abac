"""What text a file gives, where its pages, paragraphs and lines begin, and which files are refused."""

import io
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data import document_formats
from mem_agent.data.document_formats import DocumentError, Limits, Unit, read_document
from mem_agent.tests.helpers.cpu_time import at_most
from mem_agent.tests.helpers.document_files import encrypted, pdf_bytes, word_bytes

PAGE = b"""<?xml version="1.0" encoding="utf-8"?><!doctype html><html><head><title>Metals</title>
<style>p {color: red}</style><script>alert("x")</script></head><body>
<nav>Home</nav><h1>Silver &amp; gold</h1><p>One <b>bo</b>ld text<br>next line<!-- unseen -->.</p>
<p hidden>secret</p><p style="display: none">secret</p><noscript>secret</noscript><template>secret</template>
<table><tr><td>Ann</td><td>silver</td></tr></table><svg><text>secret</text></svg></body></html>"""


def unit_texts(document) -> list[str]:
    ends = [*document.starts[1:], len(document.text)]
    return [document.text[a:b].strip() for a, b in zip(document.starts, ends, strict=True)]


def test_a_text_is_counted_in_lines_and_keeps_all_else():
    document = read_document("a.txt", b"one\r\n\r\n  two\r\nthree")
    assert document.text == "one\n\n  two\nthree" and document.unit is Unit.LINE and document.note == ""
    assert unit_texts(document) == ["one", "", "two", "three"]
    assert document.units(0, 3) == (1, 1)
    assert document.units(1, 8) == (1, 3)


@given(st.text(st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip),
       st.data())
def test_any_place_of_a_text_lies_in_the_lines_named(text, data):
    document = read_document("a.txt", text.encode())
    text = document.text  # without a mark of its encoding
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    first, last = document.units(start, end)
    named = "".join(line + "\n" for line in text.split("\n")[first - 1 : last])
    assert text[start:end] in named
    assert first == 1 + text.count("\n", 0, start) and last == 1 + text.count("\n", 0, end - 1)


@pytest.mark.parametrize(("content", "text", "note"), [
    ("Zürich – 東京".encode(), "Zürich – 東京", ""),
    ("Zürich".encode("utf-8-sig"), "Zürich", ""),
    ("Zürich".encode("utf-16"), "Zürich", "read as utf-16"),
    ("Zürich".encode("utf-32"), "Zürich", "read as utf-32"),
    (b"<meta charset='latin-1'><p>Z\xfcrich", "Zürich", "read as cp1252"),
    (b"<meta charset='iso-8859-1'><p>\x93Z\xfcrich\x94 5 \x80", "“Zürich” 5 €", "read as cp1252"),
    (b"<meta charset='iso-8859-1'><p>Z\xfcrich \x81", "Zürich \x81", "read as iso-8859-1"),
    ("<meta charset='gb2312'><p>朱镕基".encode("gbk"), "朱镕基", "read as gb18030"),
    (b"<meta charset='us-ascii'><p>Z\xc3\xbcrich", "Zürich", ""),
    (b"<meta charset='utf-16'><p>Z\xc3\xbcrich", "Zürich", ""),
    (b"<meta charset='UTF-32LE'><p>Z\xc3\xbcrich!", "Zürich!", ""),
    (b"<meta charset='cp037'><p>Ann", "Ann", ""),
    (b"<meta charset='utf-7'><p>1 +- 2", "1 +- 2", ""),
    (b"<meta charset='no such'><p>Z\xc3\xbcrich", "Zürich", ""),
    (b"<meta charset='Windows-1252'><p>Z\xfcrich", "Zürich", "read as windows-1252"),
    (b"<meta charset='zlib'><p>Z\xc3\xbcrich", "Zürich", ""),
    (b"<meta charset='undefined'><p>Z\xc3\xbcrich", "Zürich", ""),
    (b"<meta charset='unicode:escape'><p>Z\xc3\xbcrich", "Zürich", ""),
    (b"<meta charset='idna.'><p>Z\xc3\xbcrich", "Zürich", ""),
])  # fmt: skip
def test_encodings(content, text, note):
    name = "a.html" if content.startswith(b"<") else "a.txt"
    document = read_document(name, content)
    assert (document.text.strip(), document.note) == (text, note)


XML = "<?xml version='1.0' encoding='%s'?><a>Zürich</a>"


@pytest.mark.parametrize(("content", "note"), [
    ('Write <meta charset="iso-8859-1"> – “José”'.encode(), ""),
    ('HEAD = "<?xml encoding=\'shift_jis\'?>"  # 東京'.encode(), ""),
    ('Write <meta charset="iso-8859-1">: José'.encode("cp1252"), "read as cp1252"),
    ((XML % "utf-16").encode(), ""),
    ((XML % "iso-8859-1").encode("latin-1"), "read as cp1252"),
    (("\n" + XML % "cp850").encode("cp850"), "read as cp850"),
])  # fmt: skip
def test_a_text_may_speak_of_encodings_and_xml_has_one(content, note):
    document = read_document("a.txt", content)
    assert document.note == note and {"José", "東京", "Zürich"} & set(re.findall(r"\w+", document.text))


def test_a_text_may_speak_of_pdfs_and_a_pdf_stand_behind_something():
    assert read_document("a.md", b"# Files\nA PDF begins with `%PDF-1.4`.").unit is Unit.LINE
    assert read_document("a.pdf", b"sent by mail\r\n" + PDF).unit is Unit.PAGE


def test_an_encoding_that_nobody_names_is_guessed_and_said():
    german = "Die Straße führt über die Brücke nach Köln, wo früher die Märkte für Öl und Gewürze lagen. " * 5
    document = read_document("a.txt", german.encode("cp1252"))
    assert "Brücke" in document.text and document.note.startswith("read as ")


def test_a_page_is_what_a_browser_shows_under_its_title():
    document = read_document("a.html", PAGE)
    assert document.unit is Unit.PARAGRAPH
    assert unit_texts(document) == ["Metals", "Home", "Silver & gold", "One bold text", "next line.", "Ann  silver"]
    assert "secret" not in document.text and "alert" not in document.text and "unseen" not in document.text
    assert read_document("no-suffix", PAGE).text == document.text


def test_a_page_deeper_than_the_parsers_own_limit_is_whole_or_refused():
    deep = "<div>" * 400 + "the end" + "</div>" * 400
    assert "the end" in read_document("a.html", f"<p>begin{deep}".encode()).text
    with pytest.raises(DocumentError, match="nested too deeply"):
        read_document("a.html", b"<p>begin" + b"<div>" * 50_000 + b"the end")


def test_comments_without_end_before_what_might_be_a_page_take_no_time():
    assert read_document("a.txt", b"<!---->" * 50_000 + b"<!--").unit is Unit.LINE
    assert read_document("a.txt", b"<!-- a --> <!-- b -->\n<!DOCTYPE html><p>Ann.").text == "Ann."


@pytest.mark.parametrize("page", [
    b"<html>" + b" " * 2**17 + b"<p>Ann</p></html>",
    *(b"<meta charset=%b><p>Ann</p>" % name + b"-" + b"a" * 2**20
      for name in (b"punycode", b"punycode:", b"PunyCode", b"_punycode", b"-punycode", b"puny.code.")),
])  # fmt: skip
def test_pages_that_would_take_for_ever(page):
    with at_most(5):
        assert read_document("a.html", page).text.startswith("Ann")


def test_a_page_may_have_heads_and_styles():
    head = b'<?xml version="1.0" encoding="utf-8"?>'
    page = head * 2 + b"<html><p style='padding-left: 9999em; margin-top: 99em'>Ann</p><p style='color: red'>Bob</p>"
    text = read_document("a.html", page).text
    assert text.split() == ["Ann", "Bob"] and len(text) < 20


def test_a_table_that_blanks_would_fill_is_shown_by_rows():
    rows = "<tr><td>metal<td>lead" * 2_000
    page = f"<html><title>T</title><table>{rows}<tr><td>{'z' * 10_000}<td>end</table><p>after</html>"
    lines = read_document("a.html", page.encode()).text.splitlines()
    assert sum(map(len, lines)) < 60_000 and lines.count("metal lead") == 2_000 and lines[-1] == "after"
    assert "z end" in lines[-2] or "z end" in lines[-3]


def test_a_small_table_keeps_its_columns():
    page = "<html><title>T</title><table><tr><td>metal<td>lead<tr><td>a long cell<td>x</table></html>"
    assert read_document("a.html", page.encode()).text.splitlines()[-2:] == ["metal        lead", "a long cell  x"]


def test_a_pdf_is_counted_in_pages():
    content = pdf_bytes([["Ann lives in Rome.", "Her metal is silver."], [], ["Bob, naïve, has gold."]])
    document = read_document("a.pdf", content)
    assert document.unit is Unit.PAGE
    assert unit_texts(document) == ["Ann lives in Rome.\nHer metal is silver.", "", "Bob, naïve, has gold."]
    assert document.note == "1 of 3 pages hold no text; scans need OCR first"
    at = document.text.index("gold")
    assert document.units(at, at + 4) == (3, 3)
    assert read_document("no-suffix", content).text == document.text


def test_a_pdf_that_anybody_may_read_needs_no_password():
    pdf = pdf_bytes([["Ann has silver."]])
    assert "silver" in read_document("a.pdf", encrypted(pdf, "")).text


def test_a_word_document_is_counted_in_paragraphs_and_rows():
    document = read_document("a.docx", word_bytes(["Ann.", "", "Bob."], [["metal", "silver"], ["fruit", "fig"]]))
    assert document.unit is Unit.PARAGRAPH
    assert unit_texts(document) == ["Ann.", "metal | silver", "fruit | fig", "Bob."]


def bomb() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 2**21)
    return content.getvalue()


def test_a_word_document_may_have_large_pictures_and_no_large_text():
    """A parser takes ten times what it is given, and is given nothing else of the archive."""
    content = io.BytesIO(word_bytes(["Ann."]))
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/picture.png", b"x" * 2**22)
        archive.writestr("word/footnotes.xml", b" " * 2**22)
    assert read_document("a.docx", content.getvalue(), Limits(xml_bytes=2**21)).text == "Ann."
    with pytest.raises(DocumentError, match="unpacks to more than 0 MiB of text with its marks"):
        read_document("a.docx", content.getvalue(), Limits(xml_bytes=2**10))
    assert Limits().xml_bytes < 2**28


def archive_of(name: str, part: bytes = b"text") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(name, part)
    return content.getvalue()


PDF = pdf_bytes([["Ann has silver."]])


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("empty.txt", b"", "holds no text"),
    ("blank.txt", b" \n\t\n", "holds no text"),
    ("blank.html", b"<p> </p>", "holds no text"),
    ("nothing.html", b"", "not readable as HTML|holds no text"),
    ("hidden.html", b"<html hidden><p>Ann</p></html>", "holds no text"),
    ("style.html", b"<p style='DISPLAY: none'>Ann</p>", "holds no text"),
    ("a.bin", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a text, PDF"),
    ("a.rtf", b"{\\rtf1 text}", "RTF is not read; save it as"),
    ("scan.pdf", pdf_bytes([[], []]), "no text on its 2 page.*OCR"),
    ("locked.pdf", encrypted(PDF, "secret"), "encrypted; save it without a password"),
    ("old-locked.pdf", encrypted(PDF, "secret", "RC4-128"), "encrypted; save it without a password"),
    ("half.pdf", PDF[: len(PDF) // 2], "cannot be read"),
    ("head.pdf", b"%PDF-1.7", "the file cannot be read"),
    ("half.docx", word_bytes(["Ann."])[:400], "a damaged archive"),
    ("table.xlsx", archive_of("xl/workbook.xml"), "no Word document; unpack it"),
    ("odd.docx", archive_of("word/document.xml"), "not readable as a Word document"),
    ("bomb.docx", bomb(), "unpacks to more than 1 MiB of text"),
    ("big.txt", b"a" * (2**20 + 1), "more than 1 MiB"),
    ("wide.txt", b"a" * 100_001, "more than 100,000 characters"),
    ("wide.pdf", pdf_bytes([["a" * 500] * 50] * 5), "more than 100,000 characters"),
])  # fmt: skip
def test_what_is_refused_is_one_line_with_the_files_name(name, content, reason):
    with pytest.raises(DocumentError, match=reason) as refused:
        read_document(name, content, Limits(file_bytes=2**20, characters=100_000))
    assert str(refused.value).startswith(f"{name}: ") and "\n" not in str(refused.value)


@pytest.mark.parametrize(("parser", "name", "content"), [
    ("page_text", "a.html", b"<p>Ann"), ("pdf_pages", "a.pdf", PDF),
    ("word_paragraphs", "a.docx", word_bytes(["Ann."])), ("body_xml", "a.docx", word_bytes(["Ann."])),
])  # fmt: skip
def test_what_a_library_quotes_of_a_file_is_cut(parser, name, content, monkeypatch):
    def fail(*_):
        raise KeyError("a\n" * 2**20)

    monkeypatch.setattr(f"{document_formats.__name__}.{parser}", fail)
    with pytest.raises(DocumentError, match=r"KeyError: [^\n]{200}\)$"):
        read_document(name, content)
