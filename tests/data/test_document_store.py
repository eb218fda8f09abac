"""The store of long documents."""

import hashlib
import os
import pickle
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data.document_store import (
    DocumentStore,
    DocumentWriter,
    MissingDocument,
    StoreError,
    document_id,
    store_folder,
)
from mem_agent.system import file_lock

TEXTS = ["test", "Zürich\r\nümlaut", "long " * 10_000, "\u2028 \x00 𝒙"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "train.jsonl.docs"


def write(folder, texts):
    with DocumentWriter(folder) as documents:
        ids = [documents.add(text) for text in texts]
        documents.commit()
    return ids


def test_id_is_the_start_of_sha256():
    assert document_id("test") == "9f86d081884c7d65"  # printf test | sha256sum


@pytest.mark.parametrize("data", ["a/train.jsonl", "a/train.jsonl@[0:100]", "a/train.jsonl@[-5:]"])
def test_folder_belongs_to_the_training_file(data):
    assert str(store_folder(data)) == "a/train.jsonl.docs"


def test_round_trip_and_deduplication(folder):
    ids = write(folder, TEXTS + TEXTS)
    store = DocumentStore(folder)
    assert ids[:4] == ids[4:] and len(store) == 4
    assert [store.get(i) for i in ids[:4]] == TEXTS
    assert (folder / "documents.bin").stat().st_size == sum(len(text.encode()) for text in TEXTS)
    assert ids[0] in store and "0" * 16 not in store


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), min_size=1, max_size=8))
def test_any_text_round_trips(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("store") / "docs"
    ids = write(folder, texts)
    assert [DocumentStore(folder).get(i) for i in ids] == texts


def test_second_writer_appends_and_keeps_the_first_ids(folder):
    first = write(folder, TEXTS[:2])
    open_reader = DocumentStore(folder)
    assert open_reader.get(first[0]) == TEXTS[0]
    second = write(folder, TEXTS[1:])
    assert first[1] == second[0] and len(DocumentStore(folder)) == 4
    assert open_reader.get(first[1]) == TEXTS[1]


def test_nothing_is_left_without_commit(folder):
    with DocumentWriter(folder) as documents:
        documents.add("test")
    assert not folder.exists()
    write(folder, ["kept"])
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(RuntimeError), DocumentWriter(folder) as documents:
        documents.add("dropped")
        raise RuntimeError
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def before_the_lock(monkeypatch, happens):
    """Once, after a writer has opened the store's file and before it holds it."""
    def first(file, refusal):
        monkeypatch.undo()
        happens()
        lock(file, refusal)

    lock = file_lock.lock
    monkeypatch.setattr(file_lock, "lock", first)


def test_a_store_that_goes_while_a_second_writer_opens_it_is_made_again(folder, monkeypatch):
    with DocumentWriter(folder) as first:
        first.add("dropped")
        before_the_lock(monkeypatch, first.close)
        assert DocumentStore(folder).get(*write(folder, ["kept"])) == "kept"


def test_a_store_that_a_third_writer_made_again_is_not_written_by_two(folder, monkeypatch):
    first, third = DocumentWriter(folder), DocumentWriter(folder)
    first.add("dropped")

    def made_again():
        first.close()
        third.add("kept")

    before_the_lock(monkeypatch, made_again)
    with third, pytest.raises(StoreError, match="another prepare_data is writing this store; wait"):
        write(folder, ["lost"])


def test_a_store_that_another_writer_filled_meanwhile_stays(folder, monkeypatch):
    ids = []
    with DocumentWriter(folder) as documents:
        before_the_lock(monkeypatch, lambda: ids.extend(write(folder, ["kept"])))
        documents.add("dropped")
    assert [DocumentStore(folder).get(i) for i in ids] == ["kept"]


def test_what_a_file_system_keeps_of_an_open_file_is_no_error(folder, monkeypatch):
    """NFS renames a file that is removed while it is open, and its folder is not empty then."""
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path, **_: path.rename(path.with_name(".nfs1")))
    with pytest.raises(RuntimeError, match="the row"), DocumentWriter(folder) as documents:
        documents.add("dropped")
        raise RuntimeError("the row that is wrong")
    unlink(folder / ".nfs1")
    assert DocumentStore(folder).get(*write(folder, ["kept"])) == "kept"


def test_writer_without_documents_creates_nothing(folder):
    write(folder, [])
    assert not folder.exists()


def test_leftovers_of_a_killed_writer_are_cut_off(folder):
    ids = write(folder, ["one"])
    with (folder / "documents.bin").open("ab") as data:
        data.write(b"half a docum")
    assert DocumentStore(folder).get(ids[0]) == "one"
    ids += write(folder, ["two"])
    assert (folder / "documents.bin").read_bytes() == b"onetwo"
    assert [DocumentStore(folder).get(i) for i in ids] == ["one", "two"]


def test_two_writers_are_refused(folder):
    with DocumentWriter(folder) as first, DocumentWriter(folder) as second:
        first.add("one")
        with pytest.raises(StoreError, match="another prepare_data"):
            second.add("two")
        first.commit()
    assert len(DocumentStore(folder)) == 1


def test_missing_store_and_document(folder):
    with pytest.raises(MissingDocument, match=r"train\.jsonl\.docs: no document store \(index\.jsonl is absent\)"):
        DocumentStore(folder).get("9f86d081884c7d65")
    write(folder, ["one"])
    with pytest.raises(MissingDocument, match="no document '9f86d081884c7d65' among 1"):
        DocumentStore(folder).get("9f86d081884c7d65")


def test_damage_is_named(folder):
    ids = write(folder, ["one", "two"])
    data, index = folder / "documents.bin", folder / "index.jsonl"
    data.write_bytes(b"oneTWO")
    assert DocumentStore(folder).get(ids[0]) == "one"
    with pytest.raises(MissingDocument, match="damaged"):
        DocumentStore(folder).get(ids[1])
    data.write_bytes(b"one")
    with pytest.raises(MissingDocument, match="damaged"):
        DocumentStore(folder).get(ids[1])
    with pytest.raises(StoreError, match="shorter"):
        write(folder, ["three"])
    index.write_bytes(index.read_bytes()[:-5])
    with pytest.raises(MissingDocument, match="cannot be read"):
        DocumentStore(folder).get(ids[0])
    with pytest.raises(StoreError, match="damaged"):
        write(folder, ["three"])


def test_a_document_that_is_no_text_is_named(folder):
    folder.mkdir()
    (folder / "documents.bin").write_bytes(b"\xff\xfe")
    id = hashlib.sha256(b"\xff\xfe").hexdigest()[:16]
    (folder / "index.jsonl").write_text(f'{{"id": "{id}", "offset": 0, "bytes": 2}}\n')
    with pytest.raises(MissingDocument, match=f"document '{id}' is not UTF-8; copy the folder again"):
        DocumentStore(folder).get(id)


def test_reader_needs_no_write_permission(folder):
    ids = write(folder, ["one"])
    for path in [*folder.iterdir(), folder]:
        path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert DocumentStore(folder).get(ids[0]) == "one"
    folder.chmod(0o700)


def test_pickles_as_its_path(folder):
    ids = write(folder, TEXTS)
    store = DocumentStore(folder)
    store.get(ids[2])  # open, with an index that must not travel
    travelled = pickle.dumps(store)
    assert len(travelled) < 500
    assert pickle.loads(travelled).get(ids[2]) == TEXTS[2]


def test_threads_share_one_reader(folder):
    texts = [f"{i} " * (i + 1) for i in range(200)]
    ids = write(folder, texts)
    store, start = DocumentStore(folder), threading.Barrier(8)

    def read(_):
        start.wait()
        return [store.get(i) for i in ids]

    open_files = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(8) as pool:
        assert all(found == texts for found in pool.map(read, range(8)))
    assert len(os.listdir("/proc/self/fd")) == open_files + 1
    store.close()
    assert store.get(ids[0]) == texts[0]
