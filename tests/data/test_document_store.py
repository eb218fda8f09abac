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


def test_a_document_is_a_file_named_by_the_start_of_its_sha256(folder):
    assert document_id("test") == "9f86d081884c7d65"  # printf test | sha256sum
    write(folder, ["test"])
    assert files(folder) == {"9f/9f86d081884c7d65.txt": b"test"}


@pytest.mark.parametrize(("data", "store"), [
    ("a/train.jsonl", "a/train.jsonl.docs"), ("a/train.jsonl@[0:100]", "a/train.jsonl.docs"),
    ("a/train.jsonl@[-5:]", "a/train.jsonl.docs"), ("a/train_3.parquet", "a/parquet.docs"),
    ("a/train_*.parquet", "a/parquet.docs"), ("a/train_0.parquet@[0:8]", "a/parquet.docs"),
])
def test_folder_belongs_to_the_training_file(data, store):
    assert str(store_folder(data)) == store


def test_round_trip_and_deduplication(folder, tmp_path):
    ids = write(folder, TEXTS + TEXTS)
    store = pickle.loads(pickle.dumps(DocumentStore(folder)))
    assert ids[:4] == ids[4:] and len(files(folder)) == 4 and [store.get(name) for name in ids[:4]] == TEXTS
    assert ids[0] in store and "0" * 16 not in store
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


def test_what_is_missing_or_damaged_is_named_with_the_remedy(folder):
    with pytest.raises(MissingDocument, match=r"train\.jsonl\.docs.*copy"):
        DocumentStore(folder).get("9f86d081884c7d65")
    (name,) = write(folder, ["one"])
    with pytest.raises(MissingDocument, match="9f86d081884c7d65"):
        DocumentStore(folder).get("9f86d081884c7d65")
    next(folder.rglob("*.txt")).write_text("ONE")
    with pytest.raises(MissingDocument, match=name):
        DocumentStore(folder).get(name)


def test_a_store_of_an_earlier_version_says_how_to_make_it_again(folder):
    folder.mkdir()
    (folder / "documents.bin").write_text("test")
    (folder / "index.jsonl").write_text('{"id": "9f86d081884c7d65", "offset": 0, "bytes": 4}\n')
    with pytest.raises(MissingDocument, match=r"earlier version.*again"):
        DocumentStore(folder).get("9f86d081884c7d65")
