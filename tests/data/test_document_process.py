"""Files of strangers that a command reads are parsed in a process, with the limits of their length."""

import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data import document_formats, document_process, document_workers
from mem_agent.data.document_formats import DocumentError, Limits, is_plain, read_document
from mem_agent.data.document_process import MEMORY, Allowed, BoundedReader, Reading, allowed_for, read_bounded
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
        patch.setitem(sys.modules, "chardetng_py", None)
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


def test_a_file_that_is_stopped_or_fails_is_skipped_and_the_next_one_read(tmp_path, monkeypatch):
    """Whatever it made of its process is gone with that."""
    for name, content in {"a.html": b"<p>Ann", "b.docx": large_word(40), "c.html": b"<p>Bob", "d.docx": large_word(41),
                          "e.html": b"<p>Eve", "f.pdf": pdf_bytes([["Fay"]])}.items():
        (tmp_path / name).write_bytes(content)
    small, slow = (len((tmp_path / name).read_bytes()) for name in ("b.docx", "d.docx"))
    bounds = {small: Allowed(600, 2**28, "its limit", "split it"), slow: Allowed(1, MEMORY, "its limit", "split it")}
    monkeypatch.setattr(document_process, "allowed_for", lambda length: bounds.get(length) or allowed_for(length))
    documents = read_documents([str(tmp_path)])
    assert [document.text for document in documents.documents] == ["Ann", "Bob", "Eve", "Fay"]
    reasons = [part.reason for part in documents.skipped]
    assert "memory" in reasons[0].lower() and reasons[1:] == ["no text within 1 s (its limit); split it"]
    assert not workers()


def test_a_folder_of_small_files_is_one_start(tmp_path, monkeypatch):
    started, start = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **named: started.append(args) or start(*args, **named))
    for number in range(20):
        (tmp_path / f"{number}.html").write_bytes(b"<p>Ann %d" % number)
    documents = read_documents([str(tmp_path)])
    assert [document.text for document in documents.documents] == [f"Ann {number}" for number in range(20)]
    assert len(started) == 1 and not workers()


def test_what_forks_and_is_gone_is_started_again():
    with BoundedReader() as reader:
        for _ in range(3):
            assert reader.read("a.html", b"<p>Ann").text == "Ann"
            (forks,) = workers()
            os.kill(int(forks), signal.SIGKILL)
            with pytest.raises(DocumentError, match=r"^a\.html: its parser failed"):
                reader.read("a.html", b"<p>Ann")


def test_an_interrupt_ends_the_process(monkeypatch):
    def interrupted(*_):
        (forks,) = workers()
        wait_for(lambda: workers(int(forks)))
        raise KeyboardInterrupt

    monkeypatch.setattr(socket.socket, "recv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_bounded("slow.docx", large_word(40))
    assert not workers()


def test_a_command_that_is_killed_takes_its_processes_along(tmp_path):
    (tmp_path / "slow.docx").write_bytes(large_word(40))
    code = "import sys; from mem_agent.data.read_documents import read_documents; read_documents(sys.argv[1:])"
    asking = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "slow.docx")],
                              env=os.environ | {"PYTHONPATH": str(ROOT.parent)})
    wait_for(lambda: workers(asking.pid), asking)
    (forks,) = workers(asking.pid)
    wait_for(lambda: workers(int(forks)), asking)
    (worker,) = workers(int(forks))
    wait_for(lambda: b"lxml" in Path("/proc", worker, "maps").read_bytes(), asking)  # it has begun to parse
    assert {os.readlink(file).partition(":")[0] for file in Path("/proc", worker, "fd").iterdir()} <= {
        "/memfd", "/dev/null"}  # and has no way to whoever asks
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    wait_for(lambda: not any(Path("/proc", one, "exe").exists() for one in (forks, worker)))


def test_a_process_has_no_keys_and_ends_itself_if_nobody_does(tmp_path, monkeypatch):
    program, asked, send = tmp_path / "python", [], socket.send_fds
    program.write_text(f'#!/bin/sh\nprintf "%s" "$* $MY_API_KEY $HOME" > "{tmp_path}/started"\nhead -c 1 >&2\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(socket, "send_fds", lambda line, sent, files: asked.extend(sent) or send(line, sent, files))
    monkeypatch.setenv("MY_API_KEY", "secret")
    monkeypatch.setenv("HOME", "/home")
    with pytest.raises(DocumentError, match="its parser failed"):
        read_bounded("a.pdf", b"%PDF-")
    assert (tmp_path / "started").read_text() == f"-P -m {document_workers.__name__}  /home"
    assert asked == [b"[611, %d]" % (MEMORY + 5 * 64)]


HEAD = b'+text\0{"unit": "line", "note": ""}\n'


@pytest.mark.parametrize(("answer", "code"), [
    (HEAD + bytes(8), 1), (b"", 0), (b"+text", 0), (b"text", 0), (HEAD + bytes(7), 0),
    (HEAD.replace(b"line", b"mile"), 0), (b'+text\0["unit"]\n', 0), (b"+text\0{}\n", 0),
    (HEAD.replace(b"text", b"\xff"), 0), (b"-\xff\xfe", 0), (b"+text\0" + b"[" * 9999 + b"\n", 0),
])  # fmt: skip
def test_half_an_answer_is_none(answer, code):
    reading = Reading("a.pdf", b"", allowed_for(0))
    with pytest.raises(DocumentError, match=r"^a\.pdf: its parser failed, perhaps beyond its 2048 MiB of memory;"):
        reading.document(BytesIO(answer), code)
    assert reading.document(BytesIO(HEAD + bytes(8)), 0).text == "text"


def test_what_a_process_says_is_a_short_line_behind_the_files_name():
    """Whoever took it over may say anything."""
    reading = Reading("a.pdf", b"", allowed_for(0))
    with pytest.raises(DocumentError) as refused:
        reading.document(BytesIO(b"-a.pdf: \x1b[2J\nno text" + b"!" * 2**20), 0)
    assert str(refused.value).startswith("a.pdf: \ufffd[2J no text!") and len(str(refused.value)) < 500
    note = json.dumps({"unit": "line", "note": "\x1b[2J" + "!" * 2**20}).encode()
    document = reading.document(BytesIO(b"+text\0" + note + b"\n" + bytes(8)), 0)
    assert document.note.startswith("\ufffd[2J!") and len(document.note) < 500


def test_an_answer_is_no_longer_than_a_process_may_be():
    """Whoever took a process over may write into the memory of the one that asked."""
    code = ("import os; from mem_agent.data import document_worker as worker; "
            f"worker.read_document = lambda *_: os.truncate(1, {MEMORY} + 1); worker.main(0, {MEMORY})")
    reading = Reading("a.pdf", b"", allowed_for(0))
    with reading.files() as (asked, said):
        reading.ask(asked)
        ended = subprocess.run([sys.executable, "-c", code], stdin=asked, stdout=said, stderr=subprocess.PIPE,
                               env=os.environ | {"PYTHONPATH": str(ROOT.parent)})
    assert ended.returncode == 1 and b"File too large" in ended.stderr


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
