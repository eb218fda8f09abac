"""Files that people upload and ask about, and the bodies of their requests."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from functools import cache
from unittest.mock import Mock

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from mem_agent.asking.bodies import json_body
from mem_agent.asking.chat_request import MessageReader, options_of
from mem_agent.asking.completion import prompts_of
from mem_agent.asking.forms import form_file
from mem_agent.asking.quotes import quoted
from mem_agent.asking.request_error import RequestError
from mem_agent.asking.sections import sections_of
from mem_agent.asking.sources import words
from mem_agent.asking.split_message import split_message
from mem_agent.asking.steps import Section
from mem_agent.asking.stop_text import StopText
from mem_agent.data.document_formats import DocumentError, Limits, is_plain, read_document
from mem_agent.data.read_documents import Documents, read_documents
from mem_agent.system.printable import printable
from mem_agent.tests.fuzz.target import Target, written
from mem_agent.tests.helpers.document_files import encrypted, pdf_bytes, word_bytes

LIMITS = Limits(file_bytes=2**22, characters=2**20, files=10)
PAGE = b"""<!doctype html><html><head><title>Ann</title><meta charset="utf-8"><style>p{}</style></head><body>
<p hidden>x</p><p style="display: none">y</p><h1>Ann</h1><p>She has gold.</p><table><tr><td>a</td><td colspan=3>b</td>
</tr></table><ul><li>one<li>two</ul><pre>  kept </pre><!-- c --><a href=x>link</a></body></html>"""
TAGS = (b"<p>", b"<div>", b"</div>", b"<table>", b"<tr>", b"<td>", b"<ul>", b"<li>", b"<pre>", b"<!--", b"-->", b"<b>",
        b"<?xml ", b"<meta charset=utf-7>", b" style=", b" hidden", b"&amp;", b"&#0;", b"<a", b"<html", b'"',
        b"<span>", b"<script>", b"<![CDATA[", b"<svg>", b"<select>", b"<br>", b"<hr>", b"&nbsp;", b" ", b"\n")


def _document(name: str, data: bytes) -> None:
    """Read as a document, with all that is promised of one."""
    document = read_document(name, data, LIMITS)
    text, starts = document.text, list(document.starts)
    assert text.strip() and not set("\r\0") & set(text), name
    text.encode()
    assert starts == sorted(starts) and all(0 <= start <= len(text) for start in starts)
    documents = Documents((document, document))
    for start in (0, len(documents.text) // 2):
        documents.places(start, start + 40)


def _html(data: bytes) -> None:
    _document("page.html", data)


def _text(data: bytes) -> None:
    _document("notes", data)
    if is_plain("notes.txt", data):  # else in a process, of which the search sees nothing
        read_documents([str(written("notes.txt", data))], LIMITS)


def _word(data: bytes) -> None:
    """The body of a Word document; the archive around it is whole."""
    _document("a.docx", _with_body(data))


def _with_body(body: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(_word_file())) as source, zipfile.ZipFile(out, "w") as made:
        for entry in source.infolist():
            made.writestr(entry.filename, body if entry.filename == "word/document.xml" else source.read(entry))
    return out.getvalue()


@cache
def _word_file() -> bytes:
    return word_bytes(["Ann has gold.", "Ben."], [["a", "b"]])


@cache
def _word_body() -> bytes:
    with zipfile.ZipFile(io.BytesIO(_word_file())) as archive:
        return archive.read("word/document.xml")


@cache
def _pdfs() -> tuple[bytes, ...]:
    plain = pdf_bytes([["Ann has gold."]])
    return plain, encrypted(plain, "")


# --- requests --------------------------------------------------------------------------------------------------------
FILES = {"file-1": "Ann has gold."}


async def _to_text(name: str, content: bytes) -> str:
    try:  # here, and not in the process that reads documents for a server: that is the document targets' part
        return read_document(name, content, LIMITS).text
    except DocumentError as error:
        raise RequestError(400, str(error)) from None


def _uploaded(id: str) -> str:
    if id not in FILES:
        raise RequestError(404, "no such file")
    return FILES[id]


READER = MessageReader(lambda text: len(text) > 60, _uploaded, _to_text, 2**20)
CHAT = {
    "model": "m", "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Ann has gold."}, {"type": "text", "text": "Who?"}]},
        {"role": "assistant", "content": "Ann."},
        {"role": "user", "content": "Ann has gold.\n\nQuestion: Who?\nAnswer:"},
    ],
    "documents": ["Ben.", {"title": "Ben", "text": "Silver."}, {"file_data": "data:text/plain;base64,QmVu"}],
    "temperature": 0.5, "top_p": 1, "max_tokens": 5, "stop": ["###"], "stream": True, "n": 1, "seed": 3,
    "stream_options": {"include_usage": True}, "response_format": {"type": "text"}, "logit_bias": {},
}


def _chat(data: bytes) -> None:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return
    request = asyncio.run(READER.chat(body))
    assert request.messages and isinstance(request.document, str)
    options_of(body)
    asyncio.run(prompts_of({**body, "prompt": request.messages[-1]["content"], "stream": False}, READER, 9))


def _json_body(data: bytes) -> None:
    async def read() -> None:
        await json_body(_request(data, "application/json"), 0)

    asyncio.run(read())


def _form(data: bytes) -> None:
    kind, _, body = data.partition(b"\0")

    async def read() -> None:
        await form_file(_request(body, kind.decode("latin-1")), 0)

    asyncio.run(read())


def _request(data: bytes, kind: str) -> web.Request:
    headers = {"Content-Type": "".join(letter for letter in kind if letter.isprintable()), "Content-Length": str(
        len(data))}
    return make_mocked_request("POST", "/", headers=headers, payload=_payload(data), client_max_size=2**20)


def _payload(data: bytes) -> StreamReader:
    payload = StreamReader(Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
    payload.feed_data(data)
    payload.feed_eof()
    return payload


def _message(data: bytes) -> None:
    """A text that holds document and question, cut where stop strings are, quoted, shown on a terminal."""
    text = data.decode("utf-8", "replace")
    document, question = split_message(text, lambda one: len(one) > 60)
    assert document in text and question in text
    stop, told = StopText([question[:5] or "x", "###"]), []
    for at in range(0, min(len(text), 4000), 3):
        told.append(stop.add(text[at : at + 3]))
    assert text.startswith("".join(told) + stop.rest())
    quoted(text, Section(0, len(text)), words(question), words(document))
    chunks = [text[at : at + 40] for at in range(0, len(text), 40)]
    sections_of(text, [[number] for number in range(len(chunks))], lambda ids: chunks[ids[0]])
    assert "\x1b" not in printable(text)


_FORM = (b"multipart/form-data; boundary=XX\0--XX\r\n"
         b'Content-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
         b'Ann\r\n--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--XX--\r\n')
TARGETS = (
    Target("document_html", _html, (PAGE, b"<p>a", b"<?xml version='1.0'?><html><p>a"), TAGS),
    Target("document_text", _text, (b"Ann has gold.\r\nBen.\n", "Zürich".encode("utf-16"), "Zürich".encode("latin-1"),
                                    b"{\\rtf1 x}", b"<html><p>a"), (b"\r", b"\0", b"\xff\xfe", b"\xe4", b"\n")),
    Target("document_word", _word, (_word_body(),), (b"<w:p>", b"<w:r>", b"<w:t>", b"</w:t>", b"<w:tbl>", b"<w:tr>",
           b"<w:tc>", b"<w:gridSpan w:val='3'/>", b"<w:vMerge/>", b"<w:tab/>", b"<w:br/>", b"&#x41;"), slow=True),
    Target("document_archive", lambda data: _document("a.docx", data), (_word_file(),), (b"PK\x03\x04",), slow=True),
    Target("document_pdf", lambda data: _document("a.pdf", data), _pdfs(), (b"obj", b"endobj", b"stream", b"<<", b">>",
           b"/Kids", b"/Parent", b"/Length", b"R", b"xref", b"trailer", b"/Contents", b"/Filter"), slow=True),
    Target("chat_body", _chat, (json.dumps(CHAT).encode(),),
           (b"\n\nQuestion: ", b"Answer:", b"a ", b"data:,", b"####")),
    Target("json_body", _json_body, (b'{"a": 1}', b""), (b"[", b"{")),
    Target("form_body", _form, (_FORM,),
           (b"\r\n", b"--XX", b"boundary=", b"filename*=utf-8''", b"Content-Encoding: gzip")),
    Target("message_text", _message, (b"Ann has gold.\n\nQuestion: Who?\nAnswer:", b"Who?", b"a " * 60 + b"\n\nWho?"),
           (b"\n", b" ", b"Question:", b"Answer:", b".", b"! ", b"###", b"\x1b[31m", "。".encode(), b"a", b"\t")),
)  # fmt: skip
