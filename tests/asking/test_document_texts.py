"""Files of strangers are parsed in a process that ends in time, with whoever waits for it, and within its memory."""

import asyncio
import base64
import io
import os
import sys

import aiohttp
import openai
import pytest

from mem_agent.asking import endpoint
from mem_agent.asking.bodies import json_body
from mem_agent.asking.document_texts import DocumentTexts
from mem_agent.asking.request_error import RequestError
from mem_agent.data.document_formats import Document, Unit, read_document
from mem_agent.tests.helpers.asking import ASKED, model_folder, use
from mem_agent.tests.helpers.document_files import large_word, pdf_bytes, word_bytes
from mem_agent.tests.helpers.document_workers import workers
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

__all__ = ["model_folder"]


@pytest.fixture(scope="module")
def slow() -> bytes:
    """Some kilobytes that take the better part of a quarter of a minute."""
    return large_word(40)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.01)


FILES = {
    "a.txt": b"Ann has gold.\r\n", "b.txt": "Zürich".encode("utf-16"), "c.txt": "Zürich".encode("cp1252"),
    "d.html": b"<p>Ann <b>has</b> gold.", "e": b"<!doctype html><p>Ann", "f.txt": b"Ann has gold.\n" * 9999,
    "g.xml": b"<?xml version='1.0' encoding='latin-1'?><a>Z\xfcrich</a>", "h\udcff\"\n.txt": b"\xef\xbb\xbfAnn",
}  # fmt: skip


@pytest.mark.parametrize("name", [*FILES, "i.pdf", "j.docx"])
def test_a_file_has_the_text_that_it_has_everywhere(name):
    made = {"i.pdf": lambda: pdf_bytes([["Ann has gold."]]), "j.docx": lambda: word_bytes(["Ann.", "Bob."])}
    content = made[name]() if name in made else FILES[name]
    assert asyncio.run(DocumentTexts(600).text(name, content)) == read_document(name, content).text


def test_only_a_little_plain_text_needs_no_process(monkeypatch):
    async def parsed(self, name, content):
        return Document(name, "parsed", Unit.LINE, [0])

    monkeypatch.setattr(DocumentTexts, "_parsed", parsed)
    alone = {name for name, content in FILES.items() if asyncio.run(DocumentTexts(0).text(name, content)) != "parsed"}
    assert alone == {"a.txt", "h\udcff\"\n.txt"}


@pytest.mark.parametrize("content", [b"\0\1\2", b"", b"  ", b"PK\x03\x04", b"{\\rtf1"])
def test_what_is_no_document_is_the_same_line(content):
    with pytest.raises(RequestError) as error:
        asyncio.run(DocumentTexts(600).text("a.txt", content))
    with pytest.raises(Exception, match=r"a\.txt: ") as known:
        read_document("a.txt", content)
    assert str(error.value) == str(known.value) and error.value.status == 400


def test_a_document_that_takes_too_long_is_refused_and_its_process_is_gone(slow):
    with pytest.raises(RequestError, match=r"^slow\.docx: no text within 0\.5 s \(SERVE_PARSE_TIMEOUT\)") as error:
        asyncio.run(DocumentTexts(0.5).text("slow.docx", slow))
    assert error.value.status == 400 and not workers()


def test_whoever_stops_waiting_ends_the_process_and_the_loop_runs_meanwhile(slow):
    async def main():
        reading = asyncio.ensure_future(DocumentTexts(0).text("slow.docx", slow))
        await until(workers)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        return workers()

    assert asyncio.run(main()) == []


def parser_that_says(text, code, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nprintf "{text}"\nexit {code}\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))


def test_half_an_answer_of_a_parser_that_failed_is_none(tmp_path, monkeypatch):
    parser_that_says("+half of", 1, tmp_path, monkeypatch)
    with pytest.raises(RequestError, match=r"^a\.pdf: its parser failed, perhaps beyond its 2048 MiB"):
        asyncio.run(DocumentTexts(600).text("a.pdf", b"%PDF-"))


@pytest.mark.parametrize("seconds,limit", [(0, "0"), (600, "610"), (599.5, "610")])
def test_whoever_waits_is_the_first_to_end_a_parser(tmp_path, monkeypatch, seconds, limit):
    """Its own limit is one of CPU time: with both alike a parser could be gone without a reason."""
    parser_that_says('+$*\\0{\\"unit\\": \\"line\\", \\"note\\": \\"\\"}\\n', 0, tmp_path, monkeypatch)
    said = asyncio.run(DocumentTexts(seconds).text("a.pdf", b"%PDF-"))
    assert said.split()[-2:] == [limit, str(2**31)]


def test_a_document_that_takes_too_much_memory_is_refused():
    with pytest.raises(RequestError, match=r"large\.docx: (its parser failed.* 256 MiB|.*MemoryError)"):
        asyncio.run(DocumentTexts(600, 2**28).text("large.docx", large_word(40)))


@pytest.mark.parametrize("inside", [False, True])
def test_a_client_that_leaves_ends_the_parsing_of_its_file(model_folder, slow, inside):
    """An upload, and a file inside a chat request."""
    async def user(client, served, router):
        parts = [{"type": "file", "file": {"file_data": base64.b64encode(slow).decode(), "filename": "slow.docx"}},
                 {"type": "text", "text": "Who?"}]
        async with aiohttp.ClientSession() as session:
            if inside:
                asked = session.post(f"{served.url}/v1/chat/completions",
                                     json={"messages": [{"role": "user", "content": parts}]})
            else:
                asked = session.post(f"{served.url}/v1/files", data={"file": io.BytesIO(slow)})
            asking = asyncio.ensure_future(asked)
            await until(workers)
            asking.cancel()
            await until(lambda: not workers() and not served.endpoint.admission.now)
        return len(router.requests)

    assert use(model_folder, [], user, serve_parse_timeout=0) == 0


@pytest.mark.parametrize("completion", [False, True])
def test_all_files_of_a_request_have_so_much_time(model_folder, slow, completion, monkeypatch):
    monkeypatch.setattr(endpoint, "json_body", lambda request, _: json_body(request, HANGS_AFTER_S))

    async def user(client, served, router):
        documents = {"documents": [{"file_data": base64.b64encode(slow).decode(), "filename": "slow.docx"}]}
        with pytest.raises(openai.InternalServerError, match="the documents were not read within") as error:
            await (client.completions.create(model="pocket", prompt="Who?", extra_body=documents) if completion else
                   client.chat.completions.create(model="pocket", messages=ASKED, extra_body=documents))
        assert error.value.status_code == 504 and not workers() and not served.endpoint.admission.now
        return len(router.requests)

    assert use(model_folder, [], user, serve_parse_timeout=0, serve_timeout=0.5) == 0


def test_places_are_as_many_as_cores(slow):
    async def main():
        texts = DocumentTexts(0)
        asked = [asyncio.ensure_future(texts.text("slow.docx", slow)) for _ in range(len(os.sched_getaffinity(0)) + 2)]
        await until(lambda: len(workers()) == len(os.sched_getaffinity(0)))
        asked[0].cancel()  # the next one's turn
        await until(lambda: asked[0].done() and len(workers()) == len(os.sched_getaffinity(0)))
        for one in asked:
            one.cancel()
        await asyncio.wait(asked)
        return workers()

    assert asyncio.run(main()) == []
