"""Files and folders as one text, and the way back from a place in it to a file."""

import io
import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data.document_formats import Document, DocumentError, Limits, Unit, read_document
from mem_agent.data.read_documents import Documents, read_documents
from mem_agent.tests.helpers.cpu_time import at_most
from mem_agent.tests.helpers.document_files import pdf_bytes


def write(folder, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_one_file_is_its_text_alone(tmp_path):
    write(tmp_path, {"a.txt": "Ann.\nBob.\n"})
    documents = read_documents([str(tmp_path / "a.txt")])
    assert documents.text == "Ann.\nBob.\n"
    (place,) = documents.places(5, 7)
    assert str(place) == f"{tmp_path}/a.txt, line 2"
    assert str(*documents.places(0, 9)) == f"{tmp_path}/a.txt, lines 1-2"


def test_several_files_stand_under_their_names_in_the_order_given(tmp_path, monkeypatch):
    write(tmp_path, {"b.txt": "Bob.", "a.pdf": pdf_bytes([["Ann."], ["Eve."]])})
    monkeypatch.chdir(tmp_path)
    documents = read_documents(["b.txt", "a.pdf"])
    assert documents.text == "b.txt\nBob.\n\na.pdf\nAnn.\n\nEve."
    assert [str(place) for place in documents.places(0, len(documents.text))] == ["b.txt, line 1", "a.pdf, pages 1-2"]
    assert documents.places(0, 5) == ()  # a heading alone


def test_a_folder_is_read_in_the_order_of_its_paths_with_numbers_as_numbers(tmp_path, monkeypatch):
    write(tmp_path, {"f/part10.txt": "x", "f/part2.txt": "x", "f/a/z.md": "x", "f/b.html": "<p>x", "f/2024.csv": "x"})
    monkeypatch.chdir(tmp_path)
    documents = read_documents(["f"])
    assert [d.name for d in documents.documents] == [
        "f/2024.csv", "f/a/z.md", "f/b.html", "f/part2.txt", "f/part10.txt"
    ]
    assert documents.skipped == ()


def test_what_a_folder_holds_besides_documents_is_skipped_and_said(tmp_path, monkeypatch):
    write(tmp_path, {"f/a.txt": "Ann.", "f/.git/config": "x", "f/.hidden": "x", "f/x.png": b"\x89PNG\0", "f/scan.pdf":
                     pdf_bytes([[]]), "other/b.txt": "x"})
    (tmp_path / "f/link.txt").symlink_to(tmp_path / "other/b.txt")
    (tmp_path / "f/round").symlink_to(tmp_path / "f")
    os.mkfifo(tmp_path / "f/pipe")
    monkeypatch.chdir(tmp_path)
    documents = read_documents(["f"])
    assert [d.name for d in documents.documents] == ["f/a.txt"]
    reasons = {skipped.name: skipped.reason for skipped in documents.skipped}
    assert reasons.pop("f/x.png").startswith("not a text")
    assert reasons.pop("f/scan.pdf").startswith("no text on its 1 page")
    assert reasons == {"f/.git": "hidden", "f/.hidden": "hidden", "f/link.txt": "a link; name its target",
                       "f/round": "a link; name its target", "f/pipe": "no regular file"}


def test_what_is_named_itself_is_read_hidden_or_not_and_must_be_readable(tmp_path):
    write(tmp_path, {".notes": "Ann.", "x.png": b"\x89PNG\0"})
    assert read_documents([str(tmp_path / ".notes")]).text == "Ann."
    with pytest.raises(DocumentError, match=r"x\.png: not a text"):
        read_documents([str(tmp_path / ".notes"), str(tmp_path / "x.png")])
    with pytest.raises(FileNotFoundError):
        read_documents([str(tmp_path / "gone.txt")])


def test_a_file_named_twice_is_read_once(tmp_path):
    write(tmp_path, {"f/a.txt": "Ann.", "f/b.txt": "Bob."})
    documents = read_documents([str(tmp_path / "f/b.txt"), str(tmp_path / "f"), str(tmp_path / "f/../f/a.txt")])
    assert [d.text for d in documents.documents] == ["Bob.", "Ann."]


def test_standard_input_is_a_document(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"Ann.")))
    documents = read_documents(["-"])
    assert (documents.documents[0].name, documents.text) == ("standard input", "Ann.")


def test_a_folder_without_documents_says_what_it_skipped(tmp_path):
    write(tmp_path, {"f/x.png": b"\x89PNG\0"})
    with pytest.raises(DocumentError, match=r"f: no documents; .*x.png was skipped: not a text"):
        read_documents([str(tmp_path / "f")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DocumentError, match=r"empty: no documents$"):
        read_documents([str(tmp_path / "empty")])


def test_all_files_together_are_bounded(tmp_path):
    write(tmp_path, {f"f/{n}.txt": "a" * 60 for n in range(3)})
    assert len(read_documents([str(tmp_path / "f")], Limits(characters=180, files=3)).documents) == 3
    for limits in (Limits(characters=179), Limits(files=2)):
        with pytest.raises(DocumentError, match="more than"):
            read_documents([str(tmp_path / "f")], limits)


TEXT = st.text("ab\n", min_size=1).filter(str.strip)


@given(st.lists(TEXT, min_size=1, max_size=4), st.data())
def test_every_character_of_a_file_leads_back_to_its_line(texts, data):
    documents = Documents(tuple(read_document(f"{n}.txt", text.encode()) for n, text in enumerate(texts)))
    number = data.draw(st.integers(0, len(texts) - 1))
    at = data.draw(st.integers(0, len(texts[number]) - 1))
    headings = 0 if len(texts) == 1 else sum(len(f"{n}.txt\n") for n in range(number + 1))
    offset = at + headings + sum(len(text) + 2 for text in texts[:number])
    assert documents.text[offset] == texts[number][at]
    (place,) = documents.places(offset, offset + 1)
    assert (place.document, place.first) == (f"{number}.txt", 1 + texts[number][:at].count("\n"))


def test_places_of_every_section_take_no_time_for_each_file():
    files = tuple(read_document(f"f{number}", b"one line\n" * 9) for number in range(4_000))
    documents = Documents(files)
    begins = range(0, len(documents.text), len(documents.text) // 4_000)
    with at_most(2.0):
        found = [documents.places(start, start + 20) for start in begins]
    assert found[0][0].document == "f0" and {place.document for places in found for place in places} > {"f9", "f3999"}


def test_places_of_pages():
    document = Document("a.pdf", "one\n\ntwo\n\nsix", Unit.PAGE, [0, 5, 10])
    assert [str(p) for p in Documents((document,)).places(4, 11)] == ["a.pdf, pages 1-3"]
