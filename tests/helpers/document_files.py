"""Files as other programs write them: a PDF by matplotlib, a Word document by python-docx."""

import io
from collections.abc import Sequence


def pdf_bytes(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF of these lines; a page of none is what a scanner leaves, a page without text."""
    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    content = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}), PdfPages(content) as pdf:
        for lines in pages:
            figure = Figure()
            figure.text(0.05, 0.5, "\n".join(lines))
            pdf.savefig(figure)
    return content.getvalue()


def encrypted(pdf: bytes, password: str) -> bytes:
    from pypdf import PdfWriter

    writer, content = PdfWriter(clone_from=io.BytesIO(pdf)), io.BytesIO()
    writer.encrypt(password, "owner", algorithm="AES-256")
    writer.write(content)
    return content.getvalue()


def word_bytes(paragraphs: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """Paragraphs, and behind the first of them a table."""
    import docx

    document, content = docx.Document(), io.BytesIO()
    first, *others = paragraphs
    document.add_paragraph(first)
    table = document.add_table(len(rows), len(rows[0]))
    for row, cells in zip(table.rows, rows, strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    for paragraph in others:
        document.add_paragraph(paragraph)
    document.save(content)
    return content.getvalue()
