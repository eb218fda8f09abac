"""Rows of tables in Word documents: what merged cells give, and what they cannot take."""

import io
import zipfile

import docx
import pytest

from mem_agent.data import document_formats
from mem_agent.data.document_formats import DocumentError, Limits, read_document
from mem_agent.data.word_paragraphs import word_paragraphs
from mem_agent.tests.helpers.cpu_time import at_most
from mem_agent.tests.helpers.document_files import word_bytes

SPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
BEGINS, GOES_ON = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"


def with_body(body: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word_bytes(["x"]))) as given, zipfile.ZipFile(out, "w", 8) as made:
        for entry in given.infolist():
            whole = f"<w:document {SPACE}><w:body>{body}</w:body></w:document>"
            made.writestr(entry, whole if entry.filename == "word/document.xml" else given.read(entry))
    return out.getvalue()


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>"


def test_a_merged_cell_is_told_once_in_a_row_and_in_each_row_that_it_stands_beside():
    document, content = docx.Document(), io.BytesIO()
    grid = document.add_table(4, 3)
    for row, texts in enumerate([("town", "who", "what"), ("Rome", "Ann", "silver"), ("", "Bob", "gold"), ("end",)]):
        for column, text in enumerate(texts):
            grid.cell(row, column).text = text
    grid.cell(1, 0).merge(grid.cell(2, 0))
    grid.cell(3, 0).merge(grid.cell(3, 2))
    document.save(content)
    rows = ["town | who | what", "Rome | Ann | silver", "Rome | Bob | gold", "end"]
    assert read_document("a.docx", content.getvalue()).text.splitlines() == rows


@pytest.mark.parametrize(("rows", "texts"), [
    ([cell("a", '<w:gridSpan w:val="3"/>') + cell("b"), cell("c") * 4], ["a | b", "c | c | c | c"]),
    ([cell("a") + cell("b", BEGINS), cell("c") + cell("", GOES_ON)], ["a | b", "c | b"]),
    ([cell("a", '<w:gridSpan w:val="2"/>') + cell("b", BEGINS), cell("c") * 2 + cell("", GOES_ON)],
     ["a | b", "c | c | b"]),
    ([cell("a" * 65, BEGINS) + cell("b"), cell("", GOES_ON) + cell("c")], ["a" * 65 + " | b", " | c"]),
    ([cell("a", BEGINS), cell("", GOES_ON), cell("b", BEGINS), cell("", GOES_ON)], ["a", "a", "b", "b"]),
    ([cell("alone", GOES_ON)], ["alone"]),
    (['<w:trPr><w:gridBefore w:val="1"/></w:trPr>' + cell("b", BEGINS), cell("a") + cell("", GOES_ON)],
     ["b", "a | b"]),
])  # fmt: skip
def test_rows(rows, texts):
    assert list(word_paragraphs(with_body(table(*rows)))) == texts


@pytest.mark.parametrize("rows", [
    [cell("a", '<w:gridSpan w:val="1000000000"/>')] * 2,
    [cell("a", BEGINS), *[cell("", GOES_ON)] * 5_000],
    [cell("a" * 10_000, BEGINS), *[cell("", GOES_ON)] * 5_000],
], ids=["a billion columns", "rows", "rows of a long cell"])
def test_merged_cells_take_time_and_memory_as_the_file_does(rows):
    with at_most(10):
        assert len(read_document("a.docx", with_body(table(*rows))).text) < 20_000


def test_paragraphs_are_counted_as_they_come(monkeypatch):
    told = []

    def paragraphs(content):
        for number in range(1000):
            told.append(number)
            yield "a " * 50

    monkeypatch.setattr(document_formats, "word_paragraphs", paragraphs)
    with pytest.raises(DocumentError, match="more than 1,000 characters"):
        read_document("a.docx", word_bytes(["x"]), Limits(characters=1000))
    assert len(told) < 20
