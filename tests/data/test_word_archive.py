"""Which part of a Word document's archive is read, and how much of it."""

import io
import tracemalloc
import zipfile

import pytest

from mem_agent.data.document_formats import DocumentError, read_document

RELATION = b'<Relationship Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/%b" Target="%b"/>'


def word_with(parts: dict[str, str], *relations: tuple[bytes, bytes]) -> bytes:
    """Bodies of such texts, and of which kind the archive says that parts are."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        told = b"".join(RELATION % relation for relation in relations)
        archive.writestr("_rels/.rels", b"<Relationships>%b</Relationships>" % told)
        for name, text in parts.items():
            archive.writestr(name, f"<document><body><p><t>{text}</t></p></body></document>")
    return content.getvalue()


@pytest.mark.parametrize(("relations", "told"), [
    ([(b"theme", b"word/document.xml"), (b"officeDocument", b"word/document2.xml")], "Bob."),
    ([(b"officeDocument", b"/word/document2.xml")], "Bob."), ([(b"officeDocument", b"word/document.xml")], "Ann."),
    ([], "Ann."), ([(b"officeDocument", b"word/document3.xml")], "Ann."),
    ([(b"theme", b"a" * 2**16), (b"officeDocument", b"word/document2.xml")], "Ann."),
], ids=["Word in a browser", "from the root", "Word", "not said", "not there", "too long"])  # fmt: skip
def test_a_word_document_says_itself_where_its_text_is(relations, told):
    parts = {"word/document.xml": "Ann.", "word/document2.xml": "Bob."}
    assert read_document("a.docx", word_with(parts, *relations)).text == told


@pytest.mark.parametrize("body", ["xl/workbook.xml", "ppt/presentation.xml", "word/a/b.xml"])
def test_a_table_or_a_talk_is_no_word_document(body):
    with pytest.raises(DocumentError, match=r"^a\.xlsx: an archive, and no Word document; unpack it$"):
        read_document("a.xlsx", word_with({body: "Ann."}, (b"officeDocument", body.encode())))


def lying() -> bytes:
    """An archive that says of 16 MiB that they are 100 bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b" " * 2**24)
    content = bytearray(packed.getvalue())
    for size in (22, content.rindex(b"PK\x01\x02") + 24):
        content[size : size + 4] = (100).to_bytes(4, "little")
    return bytes(content)


def test_of_an_archive_no_more_is_unpacked_than_it_says():
    content = lying()
    tracemalloc.start()
    try:
        with pytest.raises(DocumentError, match="a damaged archive"):
            read_document("a.docx", content)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
