"""Rows in an order that is a function of seed and number, over one file or shards; the store of long documents."""

import json
import pickle
from string import printable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.config import Config
from mem_agent.data.document_store import DocumentStore, MissingDocument, document_id
from mem_agent.data.rows import DataError
from mem_agent.data.training_file import DataSource, TrainingRow, data_bytes, is_curriculum, training_files
from mem_agent.tests.helpers.question_rows import put


def rows(names, **metadata):
    return [{"prompt": name, "label": "a", "metadata": {"context": f"c{name}"} | metadata} for name in names]


def write(path, *rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20)
        return path
    return put(path, *rows)


def prompts(source, count):
    return "".join(source.row(number).prompt for number in range(count))


def test_each_epoch_is_another_permutation_and_repeatable(tmp_path):
    path = write(tmp_path / "t.jsonl", *rows("abcdefg"))
    assert prompts(DataSource(path, 3, shuffle=False), 15) == "abcdefgabcdefga"
    order = prompts(DataSource(path, 3), 14)
    assert order == prompts(pickle.loads(pickle.dumps(DataSource(str(path), 3))), 14)
    assert sorted(order[:7]) == sorted(order[7:]) == list("abcdefg")
    assert order[:7] != order[7:] and prompts(DataSource(path, 4), 7) != order[:7]


def test_a_curriculum_is_read_in_its_order_unless_someone_says_otherwise(tmp_path):
    for name in ("t.jsonl", "t.parquet"):
        path = write(tmp_path / name, *rows("abcdefg", curriculum=True))
        assert is_curriculum(path) and is_curriculum(f"{path}@[1:3]")
        assert prompts(DataSource(path, 3), 7) == "abcdefg" != prompts(DataSource(path, 3, shuffle=True), 7)
    assert not is_curriculum(write(tmp_path / "u.jsonl", *rows("ab"))) and not is_curriculum(tmp_path / "none.jsonl")


def test_a_row_of_parquet_is_that_of_json_lines_and_read_afresh(tmp_path):
    both = [*rows("a"), *rows("b", task="gsm8k", gold=[1, 2])]
    read, lines = (DataSource(write(tmp_path / name, *both), 1, shuffle=False) for name in ("t.parquet", "t.jsonl"))
    assert [read.row(k) for k in (0, 1)] == [lines.row(k) for k in (0, 1)]
    lines.row(0).metadata.clear()
    assert lines.row(0) == TrainingRow("a", "a", {"context": "ca"})


def test_shards_are_one_set_of_rows_in_the_order_of_their_numbers_or_of_a_list(tmp_path):
    """Nine before ten; row groups of 20 rows, which are read 16 at a time."""
    ten = write(tmp_path / "train_10.parquet", *rows(printable[50:60]), *rows("x", task="gsm8k"))
    nine = write(tmp_path / "train_9.parquet", *rows(printable[:50]))
    write(tmp_path / "test.parquet", *rows("x"))
    for data in (tmp_path, tmp_path / "train_*.parquet"):
        source = DataSource(data, 1, shuffle=False)
        assert prompts(source, 62) == f"{printable[:60]}x{printable[0]}"
        assert data_bytes(data) == nine.stat().st_size + ten.stat().st_size
    for text in (json.dumps([str(ten), str(nine)]), str([str(ten), str(nine)])):
        assert prompts(DataSource(text, 1, shuffle=False), 12) == f"{printable[50:60]}x{printable[0]}"
        assert training_files(Config(train_data=text).with_absolute_paths().train_data) == (ten, nine)


@pytest.mark.parametrize(("name", "content", "said"), [
    ("t.jsonl", [*rows("a"), "text"], "line 2"), ("t.jsonl", [*rows("a"), {"prompt": "x"}], "line 2"),
    ("t.jsonl", [], "no rows"), ("t.parquet", [{"prompt": "a"}], "metadata"), ("x_*.parquet", None, "TRAIN_DATA"),
])
def test_what_cannot_be_read_is_named(tmp_path, name, content, said):
    if content is not None:
        write(tmp_path / name, *content)
    with pytest.raises(DataError, match=said):
        DataSource(tmp_path / name, 0)


# --- long documents --------------------------------------------------------------------------------------------------
TEXTS = ["test", "Zürich\r\nümlaut", "long " * 10_000, "\u2028 \x00 𝒙"]


def test_a_document_is_stored_once_as_a_file_named_by_the_start_of_its_sha256(tmp_path):
    ids = list(map(DocumentStore(tmp_path).add, TEXTS * 2))
    assert ids[0] == document_id("test") == "9f86d081884c7d65"  # printf test | sha256sum
    store = pickle.loads(pickle.dumps(DocumentStore(tmp_path)))
    assert ids[:4] == ids[4:] and len(list(tmp_path.rglob("*.txt"))) == 4 and list(map(store.get, ids[:4])) == TEXTS
    (tmp_path / "9f/9f86d081884c7d65.txt").write_text("damaged")
    for name in (ids[0], document_id("absent")):
        with pytest.raises(MissingDocument, match=name):
            store.get(name)
