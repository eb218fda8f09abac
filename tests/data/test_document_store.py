"""The store of long documents."""

import pickle

import pytest

from mem_agent.data.document_store import DocumentStore, DocumentWriter, MissingDocument, document_id, store_folder

TEXTS = ["test", "Zürich\r\nümlaut", "long " * 10_000, "\u2028 \x00 𝒙"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "train.jsonl.docs"


def write(folder, texts):
    with DocumentWriter(folder) as documents:
        return [documents.add(text) for text in texts]


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("data", "store"), [
    ("a/train.jsonl", "a/train.jsonl.docs"), ("a/train.jsonl@[-5:]", "a/train.jsonl.docs"),
    ("a/train_*.parquet", "a/parquet.docs"), ("a/train_0.parquet@[0:8]", "a/parquet.docs"),
])
def test_folder_belongs_to_the_training_file(data, store):
    assert str(store_folder(data)) == store


def test_a_document_is_stored_once_as_a_file_named_by_the_start_of_its_sha256(folder, tmp_path):
    ids = write(folder, TEXTS + TEXTS)
    assert ids[0] == document_id("test") == "9f86d081884c7d65"  # printf test | sha256sum
    store = pickle.loads(pickle.dumps(DocumentStore(folder)))
    assert ids[:4] == ids[4:] and len(files(folder)) == 4 and [store.get(name) for name in ids[:4]] == TEXTS
    assert files(folder)["9f/9f86d081884c7d65.txt"] == b"test"
    write(tmp_path / "none", [])
    assert not (tmp_path / "none").exists()


def test_an_error_removes_what_was_added_and_nothing_else(folder):
    for kept in ([], ["kept"]):
        write(folder, kept)
        before = files(folder) if kept else None
        with pytest.raises(RuntimeError), DocumentWriter(folder) as documents:
            documents.add("dropped")
            documents.add("kept") if kept else None
            raise RuntimeError
        assert (files(folder) if folder.exists() else None) == before


def test_what_is_missing_or_damaged_is_named(folder):
    write(folder, ["one"])
    for text in ("two", "one"):
        next(folder.rglob("*.txt")).write_text("ONE")
        with pytest.raises(MissingDocument, match=rf"train\.jsonl\.docs.*{document_id(text)}"):
            DocumentStore(folder).get(document_id(text))
