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
STRICT = 'xmlns:w="http://purl.oclc.org/ooxml/wordprocessingml/main"'
BEGINS, GOES_ON = '<w:vMerge w:val="restart"/>', "<w:vMerge/>"


def xml(body: str, space: str = SPACE) -> bytes:
    others = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:m="math" xmlns:x="shapes"'
    return f"<w:document {space} {others}><w:body>{body}</w:body></w:document>".encode()


def with_body(body: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", 8) as made:
        made.writestr("word/document.xml", xml(body))
    return out.getvalue()


def paragraphs(body: str, space: str = SPACE) -> list[str]:
    return list(word_paragraphs(xml(body, space)))


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
    assert paragraphs(table(*rows)) == texts


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


BOX = f"<x:txbx><w:txbxContent><w:p>{run('box')}</w:p>{table(cell('c') + cell('d'))}</w:txbxContent></x:txbx>"


@pytest.mark.parametrize(("body", "texts"), [
    (f"<w:p>{run('a')}<w:ins>{run('b')}</w:ins><w:moveTo>{run('c')}</w:moveTo></w:p>", ["abc"]),
    (f"<w:p>{run('a')}<w:del><w:r><w:delText>b</w:delText></w:r></w:del><w:moveFrom>{run('c')}</w:moveFrom></w:p>",
     ["a"]),
    (f"<w:sdt><w:sdtPr><w:t>x</w:t></w:sdtPr><w:sdtContent><w:p>{run('a')}</w:p>{table(cell('b'))}</w:sdtContent>"
     "</w:sdt>", ["a", "b"]),
    (f"<w:p>{run('a')}<w:sdt><w:sdtContent>{run('b')}</w:sdtContent></w:sdt></w:p>", ["ab"]),
    (f"<w:tbl><w:sdt><w:sdtContent><w:tr>{cell('a')}<w:sdt><w:sdtContent>{cell('b')}</w:sdtContent></w:sdt></w:tr>"
     "</w:sdtContent></w:sdt></w:tbl>", ["a | b"]),
    ("".join(f"<w:p><w:{tag}>{run(tag)}</w:{tag}></w:p>" for tag in ("smartTag", "fldSimple", "hyperlink", "bdo")),
     ["smartTag", "fldSimple", "hyperlink", "bdo"]),
    ("<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t>"
     "<w:noBreakHyphen/><w:t>d</w:t><w:instrText>DATE</w:instrText></w:r></w:p>", ["a\tb\nc-d"]),
    ("<w:p><m:oMath><m:r><m:t>e=mc</m:t></m:r></m:oMath></w:p>", ["e=mc"]),
    ("<w:p><w:r><w:ruby><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢</w:t></w:r></w:rubyBase></w:ruby>"
     "</w:r></w:p>", ["漢"]),
    (f"<w:p>{run('a')}<w:r><mc:AlternateContent><mc:Choice>{BOX}</mc:Choice><mc:Fallback>{BOX}</mc:Fallback>"
     f"</mc:AlternateContent></w:r>{run('b')}</w:p>", ["ab\nbox\nc, d"]),
    (table(f"{cell('out')}<w:tc><w:p/>{table(cell('a') + cell('b'), cell('c') + cell(''))}<w:p>{run('e')}</w:p>"
           "</w:tc>"),
     ["out | \na, b; c\ne"]),
])  # fmt: skip
def test_all_that_word_shows_is_read_and_nothing_that_is_gone(body, texts):
    assert paragraphs(body) == paragraphs(body, STRICT) == texts


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "a", "²", ""])
def test_a_span_that_is_no_number_is_one_column(number):
    span = f'<w:gridSpan w:val="{number}"/>'
    assert paragraphs(table(cell("a", span) + cell("b", BEGINS), cell("c") + cell("", GOES_ON))) == ["a | b", "c | b"]


@pytest.mark.parametrize("kind", ["document.macroEnabled", "template", "template.macroEnabledTemplate"])
def test_templates_and_documents_with_macros_are_read(kind):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word_bytes(["Ann."]))) as given, zipfile.ZipFile(out, "w") as made:
        for entry in given.infolist():
            made.writestr(entry, given.read(entry).replace(b"ml.document.main", f"ml.{kind}.main".encode()))
    assert read_document("a.docm", out.getvalue()).text == "Ann."


@pytest.mark.parametrize("rows", [
    [cell("a", '<w:gridSpan w:val="1000000000"/>')] * 2,
    [cell("a", BEGINS), *[cell("", GOES_ON)] * 5_000],
    [cell("a" * 10_000, BEGINS), *[cell("", GOES_ON)] * 5_000],
    ["<w:tc><w:tbl><w:tr>" * 80 + cell("a" * 10_000) + "</w:tr></w:tbl></w:tc>" * 80],
], ids=["a billion columns", "rows", "rows of a long cell", "tables in tables"])
def test_merged_cells_take_time_and_memory_as_the_file_does(rows):
    with at_most(10):
        assert len(read_document("a.docx", with_body(table(*rows))).text) < 20_000


def test_paragraphs_are_counted_as_they_come(monkeypatch):
    told = []

    def endless(xml):
        for number in range(1000):
            told.append(number)
            yield "a " * 50

    monkeypatch.setattr(document_formats, "word_paragraphs", endless)
    with pytest.raises(DocumentError, match="more than 1,000 characters"):
        read_document("a.docx", word_bytes(["x"]), Limits(characters=1000))
    assert len(told) < 20
