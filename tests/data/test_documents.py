"""Files and folders as one text, and the way back from a place in it to a file."""

import io
import sys
from types import SimpleNamespace

import pytest

from mem_agent.data.documents import LINE, PARAGRAPH, DocumentError, read_document, read_documents
from mem_agent.tests.helpers.document_files import encrypted, pdf_bytes, word_bytes


def write(folder, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_one_file_is_its_text_alone_and_several_stand_under_their_names(tmp_path, monkeypatch):
    write(tmp_path, {"a.txt": "Ann.\nBob.\n", "b.txt": "Bob.", "a.pdf": pdf_bytes([["Ann."], ["Eve."]])})
    monkeypatch.chdir(tmp_path)
    documents = read_documents(["a.txt"])
    assert documents.text == "Ann.\nBob.\n"
    assert [str(*documents.places(*span)) for span in ((5, 7), (0, 9))] == ["a.txt, line 2", "a.txt, lines 1-2"]
    documents = read_documents(["b.txt", "a.pdf"])
    assert documents.text == "b.txt\nBob.\n\na.pdf\nAnn.\n\nEve."
    assert [str(place) for place in documents.places(0, len(documents.text))] == ["b.txt, line 1", "a.pdf, pages 1-2"]
    assert documents.places(0, 5) == ()  # a heading alone


def test_a_folder_is_read_in_order_and_what_is_no_document_is_skipped_and_said(tmp_path, monkeypatch):
    write(tmp_path, {"f/part10.txt": "x", "f/part2.txt": "x", "f/a/z.md": "x", "f/b.html": "<p>x", "f/2024.csv": "x",
                     "f/.git/config": "x", "f/x.png": b"\x89PNG\0", "f/scan.pdf": pdf_bytes([[]])})
    monkeypatch.chdir(tmp_path)
    documents = read_documents(["f/b.html", "f", "f/../f/part2.txt"])  # each once
    assert [d.name for d in documents.documents] == [
        "f/b.html", "f/2024.csv", "f/a/z.md", "f/part2.txt", "f/part10.txt"]
    reasons = {skipped.name: skipped.reason for skipped in documents.skipped}
    assert reasons.keys() == {"f/x.png", "f/scan.pdf"} and reasons["f/scan.pdf"].startswith("no text on its")


def test_what_is_named_itself_must_be_readable(tmp_path, monkeypatch):
    write(tmp_path, {"f/x.png": b"\x89PNG\0"})
    with pytest.raises(DocumentError, match=r"f: no documents; .*x.png was skipped: not a text"):
        read_documents([str(tmp_path / "f")])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"Ann.")))
    assert read_documents(["-"]).documents[0].name == "standard input"


# --- kinds of files --------------------------------------------------------------------------------------------------
HTML = b"""<!DOCTYPE html><html><head><title>Fruit</title><style>p {}</style></head><body><h1>Apples</h1>
<p>Ann &amp; Bob ate <b>two</b>.</p><script>alert(1)</script><table><tr><td>pears</td><td>3</td></tr></table></body>"""


def test_a_page_is_what_a_browser_shows_under_its_title():
    for name in ("a.html", "page"):
        page = read_document(name, HTML)
        assert page.text.split() == "Fruit Apples Ann & Bob ate two. pears 3".split() and page.unit is PARAGRAPH
    assert read_document("notes.md", b"<html> tags are explained here").unit is LINE


def test_a_word_document_is_its_paragraphs_and_rows():
    document = read_document("a.docx", word_bytes(["Ann is.", "She was."], [["name", "age"], ["Ann", "3"]]))
    assert document.text.split() == "Ann is. name age Ann 3 She was.".split() and document.unit is PARAGRAPH
    assert document.units(*(document.text.index("She was."),) * 2) == (4, 4)


@pytest.mark.parametrize(("name", "content", "text", "note"), [
    ("a.txt", "Zürich".encode("utf-8-sig"), "Zürich", ""), ("a.txt", b"a\r\nb\rc", "a\nb\nc", ""),
    ("a.txt", "Straße, Fußgänger".encode("cp1252"), "Straße, Fußgänger", "read as windows-1252"),
    ("a.html", '<html><meta charset="shift_jis"><p>東京'.encode("shift_jis"), "東京", "read as shift_jis"),
])
def test_texts_in_other_encodings_are_read_and_it_is_said(name, content, text, note):
    document = read_document(name, content)
    assert (document.text.strip(), document.note) == (text, note)


@pytest.mark.parametrize(("name", "content", "named"), [
    ("a.pdf", encrypted(pdf_bytes([["Ann."]]), "secret"), "Decrypted"), ("a.docx", b"PK\x03\x04 cut", "Word"),
    ("a.rtf", b"{\\rtf1 Ann}", "RTF"), ("a.html", b"<p> </p>", "no text"), ("x.png", b"\x89PNG\0", "not a text"),
])
def test_what_gives_no_text_is_named_with_the_reason(name, content, named):
    with pytest.raises(DocumentError, match=f"{name}: .*{named}"):
        read_document(name, content)
