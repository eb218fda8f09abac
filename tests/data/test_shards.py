"""Training rows in parquet: one file or shards, in the order of their numbers, with one store of documents."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.config import Config
from mem_agent.data.document_store import DocumentStore, DocumentWriter, store_folder
from mem_agent.data.shards import ShardError, training_files
from mem_agent.data.training_file import DataError, DataSource, data_bytes


def rows(names, task="rank_sessions"):
    return [{"prompt": [{"role": "user", "content": name}], "label": "", "metadata": {"task": task, "gold": [1, 2]}}
            for name in names]


def write(path, rows, like=None, **options):
    schema = pa.Table.from_pylist(like).schema if like else None
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, **options)
    return path


def asked(source, count):
    return [source.row(number).prompt[0]["content"] for number in range(count)]


def test_shards_are_one_set_of_rows_in_the_order_of_their_numbers(tmp_path):
    """Nine before ten; row groups of two rows, so that rows lie in several groups."""
    for number, names in ((10, "ghi"), (9, "abcdef")):
        write(tmp_path / f"train_{number}.parquet", rows(names), row_group_size=2)
    write(tmp_path / "test.parquet", rows("x"))
    for data in (tmp_path, tmp_path / "train_*.parquet"):
        assert asked(DataSource(data, 1, shuffle=False), 10) == list("abcdefghia")
        assert data_bytes(data) == sum((tmp_path / f"train_{n}.parquet").stat().st_size for n in (9, 10))
    shuffled = DataSource(tmp_path, 5)
    assert sorted(asked(shuffled, 9)) == list("abcdefghi") != asked(shuffled, 9)
    assert asked(shuffled, 9) == asked(pickle.loads(pickle.dumps(DataSource(str(tmp_path), 5))), 9)


def test_a_row_of_parquet_is_that_of_json_lines(tmp_path):
    one, other = rows("a")[0], {"prompt": "text", "label": "7", "metadata": {"task": "gsm8k", "context": "c"}}
    other["metadata"]["gold"] = []
    jsonl = tmp_path / "t.jsonl"
    jsonl.write_text(json.dumps(one) + "\n")
    read = DataSource(write(tmp_path / "t.parquet", [one]), 1)
    assert read.row(0) == DataSource(jsonl, 1).row(0)
    assert type(read.row(0).prompt) is list and type(read.row(0).prompt[0]) is dict
    assert type(read.row(0).metadata["gold"]) is list
    assert DataSource(write(tmp_path / "u.parquet", [other]), 1).row(0).metadata == other["metadata"]


def test_a_list_is_the_files_that_it_names_in_its_order(tmp_path):
    for number, names in enumerate(("ab", "cd", "e")):
        write(tmp_path / f"train_{number}.parquet", rows(names))
    named = [str(tmp_path / f"train_{number}.parquet") for number in (2, 0)]
    for text in (json.dumps(named), str(named)):
        assert asked(DataSource(text, 1, shuffle=False), 3) == list("eab")
        assert store_folder(text) == store_folder(tmp_path)
        assert training_files(Config(train_data=text).with_absolute_paths().train_data) == tuple(map(Path, named))


def test_what_only_other_rows_have_is_left_out(tmp_path):
    both = rows("ab")
    both[1]["metadata"]["solution"] = "1,2"
    source = DataSource(write(tmp_path / "t.parquet", both), 1, shuffle=False)
    assert "solution" not in source.row(0).metadata and source.row(1).metadata["solution"] == "1,2"


def test_tasks_of_rows_are_found_over_all_shards(tmp_path):
    write(tmp_path / "train_0.parquet", rows("ab"))
    write(tmp_path / "train_1.parquet", [*rows("c"), *rows("d", task="gsm8k")])
    assert DataSource(tmp_path, 1).own_tasks == {"rank_sessions": 1, "gsm8k": 4}


def test_shards_share_one_store(tmp_path):
    with DocumentWriter(store_folder(tmp_path)) as documents:
        name = documents.add("sessions")
        documents.commit()
    for data in (tmp_path, tmp_path / "train_*.parquet", tmp_path / "train_0.parquet", tmp_path / "test.parquet",
                 f"{tmp_path}/train_0.parquet@[0:8]"):
        assert DocumentStore(store_folder(data)).get(name) == "sessions"
    assert store_folder("a/train.jsonl").name == "train.jsonl.docs"


@pytest.mark.parametrize("make,message", [
    (lambda path: path, "train_"),
    (lambda path: path / "x_*.parquet", "no file matches"),
    (lambda path: write(path / "t.parquet", [{"prompt": "a"}]), "metadata"),
    (lambda path: write(path / "t.parquet", [{"prompt": "a", "metadata": "{}"}]), "metadata"),
    (lambda path: write(path / "t.parquet", [], rows("a")), "no rows"),
    (lambda path: path / "none.parquet", "no such file"),
    (lambda path: f'["{path}/train_7.parquet"]', "train_7.parquet: no such file"),
    (lambda path: "[{", "a list of files"),
    (lambda path: str([str(write(path / name, rows("a"))) for name in ("a.parquet", "c.parquet")] * 2), "different"),
])
def test_what_cannot_be_used_is_one_line(tmp_path, make, message):
    with pytest.raises((DataError, ShardError), match=message):
        DataSource(make(tmp_path), 1)


def test_a_damaged_shard_and_a_row_without_a_prompt_are_named(tmp_path):
    (tmp_path / "train_0.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"train_0\.parquet"):
        DataSource(tmp_path, 1)
    write(tmp_path / "train_0.parquet", [*rows("a"), {"prompt": None, "label": "", "metadata": None}])
    with pytest.raises(DataError, match="row 2"):
        DataSource(tmp_path, 1, shuffle=False).row(1)


def test_several_files_are_parquet(tmp_path):
    for number in (0, 1):
        (tmp_path / f"a_{number}.jsonl").write_text("{}")
    with pytest.raises(ShardError, match=r"a_0\.jsonl is no parquet file"):
        training_files(tmp_path / "a_*.jsonl")
