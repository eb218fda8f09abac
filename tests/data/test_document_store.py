"""The store of long documents."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data.document_store import (
    DocumentStore,
    DocumentWriter,
    MissingDocument,
    document_id,
    store_folder,
)
from mem_agent.system.errors import MemAgentError

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


def test_writer_without_documents_creates_nothing(folder):
    write(folder, [])
    assert not folder.exists()


def test_leftovers_of_a_killed_writer_are_no_document(folder):
    ids = write(folder, ["one"])
    with (folder / "documents.bin").open("ab") as data:
        data.write(b"half a docum")
    ids += write(folder, ["two"])
    assert [DocumentStore(folder).get(i) for i in ids] == ["one", "two"]


def test_two_writers_are_refused(folder):
    with DocumentWriter(folder) as first, DocumentWriter(folder) as second:
        first.add("one")
        with pytest.raises(MemAgentError, match="another process"):
            second.add("two")
        first.commit()
    assert len(DocumentStore(folder)) == 1


def test_missing_store_and_document(folder):
    with pytest.raises(MissingDocument, match=r"train\.jsonl\.docs: no document store"):
        DocumentStore(folder).get("9f86d081884c7d65")
    write(folder, ["one"])
    with pytest.raises(MissingDocument, match="no document '9f86d081884c7d65' among 1"):
        DocumentStore(folder).get("9f86d081884c7d65")


def test_damage_is_named(folder):
    ids = write(folder, ["one", "two"])
    data, index = folder / "documents.bin", folder / "index.jsonl"
    for content in (b"oneTWO", b"one"):
        data.write_bytes(content)
        assert DocumentStore(folder).get(ids[0]) == "one"
        with pytest.raises(MissingDocument, match="damaged"):
            DocumentStore(folder).get(ids[1])
    index.write_bytes(index.read_bytes()[:-5])
    with pytest.raises(MissingDocument, match=r"index\.jsonl"):
        DocumentStore(folder).get(ids[0])
    with pytest.raises(MissingDocument, match=r"index\.jsonl"):
        write(folder, ["three"])


def test_threads_and_processes_share_one_reader(folder):
    texts = [f"{i} " * (i + 1) for i in range(50)]
    ids = write(folder, texts)
    store, start = DocumentStore(folder), threading.Barrier(8)

    def read(_):
        start.wait()
        return [store.get(i) for i in ids]

    with ThreadPoolExecutor(8) as pool:
        assert all(found == texts for found in pool.map(read, range(8)))
    assert pickle.loads(pickle.dumps(store)).get(ids[2]) == texts[2]
