"""Files of strangers that a command reads are parsed in a process, with the limits of their length."""

import os
import signal
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data import document_formats, document_process, document_worker
from mem_agent.data.document_formats import DocumentError, Limits, is_plain, read_document
from mem_agent.data.document_process import MEMORY, Allowed, Reading, allowed_for, read_bounded
from mem_agent.data.read_documents import read_documents
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.document_files import large_word, pdf_bytes, word_bytes
from mem_agent.tests.helpers.document_workers import workers
from mem_agent.tests.helpers.patience import wait_for
from mem_agent.tests.helpers.sources import ROOT

PLAIN = {
    "a.txt": b"Ann has gold.\n" * 9999, "b.py": b"if a < b: pass\n",
    "c.xml": b"<?xml version='1.0' encoding='UTF-8'?><a/>",
    "d.md": "\ufeffZürich".encode(), "e.txt": b"x\0" * 2**17, "f.rtf": b"{\\rtf1 text}", "g.txt": b"", "h": b"\x1b[2J",
    "i": b"a%PDF-1.7", "j.xml": b"<?xml version='1.0' encoding='utf-16'?><a/>",
    "k.md": "<meta charset=latin-1> ü".encode(),
}  # fmt: skip
PARSED = {
    "a.txt": "Zürich".encode("utf-16"), "b.txt": "Zürich liegt am See. ".encode("cp1252") * 9, "c.html": b"<p>Ann.",
    "d": b"<!doctype html><p>Ann.", "e.xml": b"<?xml version='1.0' encoding='latin-1'?><a>Z\xc3\xbcrich</a>",
    "f": b"\xef\xbb\xbf<!-- a --><html>Ann.", "g.pdf": pdf_bytes([["Ann."], [], ["Bob."]]),
    "h\udcff.docx": word_bytes(["Ann.", "Bob."], [["a", "b"]]), "i.txt": b"PK\x03\x04 Ann.",
    "j": b"a\xff%PDF-1.7", "k": b"\xef\xbb\xbf\r\n%PDF-1.7",
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_plain_text_needs_no_process(name):
    assert is_plain(name, PLAIN[name])


@pytest.mark.parametrize("name", PARSED)
def test_what_is_parsed_is_no_plain_text_and_the_same_document(name, monkeypatch):
    assert not is_plain(name, PARSED[name])
    outcomes = []
    for read in (read_document, read_bounded):
        try:
            document = read(name, PARSED[name])
            outcomes.append((document.name, document.text, document.unit, list(document.starts), document.note))
        except DocumentError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


STARTS = st.sampled_from([b"", b"<html>", b"PK\x03\x04", b"%PDF-1", b"\xef\xbb\xbf", b"\xff\xfe", b"<meta charset=",
                          b"latin-1>", b"utf-8>", b"<!-- -->", b"\0", b"{\\rtf", b" "])


@given(st.lists(STARTS, max_size=4), st.sampled_from(["a.txt", "a.HTM"]), st.binary(max_size=9))
def test_nothing_is_parsed_of_plain_text(starts, name, rest):
    content = b"".join(starts) + rest
    parsers = ("_page", "_word", "_pdf")
    with pytest.MonkeyPatch.context() as patch:
        for parser in parsers:
            patch.setattr(document_formats, parser, lambda *_: pytest.fail("parsed"))
        patch.setitem(sys.modules, "charset_normalizer", None)
        if is_plain(name, content):
            try:
                read_document(name, content)
            except DocumentError as error:
                assert "no text" in str(error) or "not a text" in str(error) or "RTF" in str(error)


def test_limits_go_with_the_file():
    with pytest.raises(DocumentError, match=r"^a\.html: more than 10 characters"):
        read_bounded("a.html", b"<p>Ann has much gold.", Limits(characters=10))
    with pytest.raises(DocumentError, match=r"^a\.html: more than 0 MiB; split it$"):
        read_bounded("a.html", b"<p>Ann has much gold.", Limits(file_bytes=10))


def test_what_a_file_may_take_grows_with_its_length_alone():
    small, large = allowed_for(0), allowed_for(2**28)
    assert (small.seconds, small.memory) == (600, MEMORY)
    assert (large.seconds, large.memory) == (600 + 2560, MEMORY + 2**34)


@pytest.mark.parametrize(("seconds", "memory", "said"), [
    (0.5, MEMORY, r"^slow\.docx: no text within 0\.5 s \(its limit\); split it$"),
    (600, 2**28, r"^slow\.docx: (its parser failed, perhaps beyond its 256 MiB of memory; split it$|.*MemoryError)"),
])  # fmt: skip
def test_a_process_beyond_its_limits_is_one_line_and_gone(seconds, memory, said, monkeypatch):
    allowed = Allowed(seconds, memory, "its limit", "split it")
    monkeypatch.setattr(document_process, "allowed_for", lambda length: allowed)
    with pytest.raises(MemAgentError, match=said):
        read_bounded("slow.docx", large_word(40))
    assert not workers()


def test_an_interrupt_ends_the_process(monkeypatch):
    waited = []

    def wait(self, timeout=None, *, whole=subprocess.Popen.wait):
        waited.append(timeout)
        if len(waited) == 1:
            raise KeyboardInterrupt
        return whole(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        read_bounded("slow.docx", large_word(40))
    assert len(waited) == 2 and not workers()


def test_a_command_that_is_killed_takes_its_process_along(tmp_path):
    (tmp_path / "slow.docx").write_bytes(large_word(40))
    code = "import sys; from mem_agent.data.read_documents import read_documents; read_documents(sys.argv[1:])"
    asking = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "slow.docx")],
                              env=os.environ | {"PYTHONPATH": str(ROOT.parent)})
    wait_for(lambda: workers(asking.pid), asking)
    (worker,) = workers(asking.pid)
    wait_for(lambda: b"lxml" in Path("/proc", worker, "maps").read_bytes(), asking)  # it has begun to parse
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    wait_for(lambda: not Path("/proc", worker, "exe").exists())


def test_a_process_has_no_keys_and_ends_itself_if_nobody_does(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf "%s" "-$* $MY_API_KEY $HOME"\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("MY_API_KEY", "secret")
    monkeypatch.setenv("HOME", "/home")
    with pytest.raises(DocumentError) as said:
        read_bounded("a.pdf", b"%PDF-")
    module, *rest = str(said.value).partition(document_worker.__name__)
    assert module == "-P -m " and rest[1].split() == ["611", str(MEMORY + 5 * 64), "/home"]


HEAD = b'+text\0{"unit": "line", "note": ""}\n'


@pytest.mark.parametrize(("answer", "code"), [
    (HEAD + bytes(8), 1), (b"", 0), (b"+text", 0), (b"text", 0), (HEAD + bytes(7), 0),
    (HEAD.replace(b"line", b"mile"), 0), (b'+text\0["unit"]\n', 0), (b"+text\0{}\n", 0),
    (HEAD.replace(b"text", b"\xff"), 0),
])  # fmt: skip
def test_half_an_answer_is_none(answer, code):
    reading = Reading("a.pdf", b"", allowed_for(0))
    with pytest.raises(DocumentError, match=r"^a\.pdf: its parser failed, perhaps beyond its 2048 MiB of memory;"):
        reading.document(BytesIO(answer), code)
    assert reading.document(BytesIO(HEAD + bytes(8)), 0).text == "text"


def test_a_folder_says_of_each_file_why_it_was_skipped(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"Ann.")
    for name in ("b\udcff.pdf", "c.docx"):
        (tmp_path / name).write_bytes({"b": b"%PDF-1.7", "c": b"PK\x03\x04"}[name[0]])
    skipped = {Path(one.name).name: one.reason for one in read_documents([str(tmp_path)]).skipped}
    assert skipped["b\udcff.pdf"].startswith("the file cannot be read") and skipped["c.docx"].startswith("a damaged")


def test_a_bomb_of_another_kind_than_its_name_is_parsed_apart(tmp_path):
    """An archive may be text from its first letter to its last."""
    with zipfile.ZipFile(tmp_path / "a.txt", "w") as archive:
        archive.writestr("word/document.xml", b"text")
    assert not is_plain("a.txt", (tmp_path / "a.txt").read_bytes())
