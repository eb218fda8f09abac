"""The data order is a function of seed and number, over one file or shards; a bad file is named with the line."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.config import Config
from mem_agent.data.document_store import store_folder
from mem_agent.data.rows import DataError
from mem_agent.data.training_file import DataSource, TrainingRow, data_bytes, is_curriculum, training_files


def write(path, rows):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n")
    return path


def rows(count):
    return [{"prompt": f"q{i}", "label": "a", "metadata": {"context": f"c{i}"}} for i in range(count)]


def chats(names, task="rank_sessions"):
    return [{"prompt": [{"role": "user", "content": name}], "label": "", "metadata": {"task": task, "gold": [1, 2]}}
            for name in names]


def parquet(path, rows, **options):
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def prompts(source, count):
    return [source.row(number).prompt for number in range(count)]


# --- order -----------------------------------------------------------------------------------------------------------
def test_each_epoch_is_another_permutation_and_repeatable(tmp_path):
    path = write(tmp_path / "t.jsonl", rows(7))
    assert prompts(DataSource(path, 3, shuffle=False), 15) == [f"q{i}" for i in range(7)] * 2 + ["q0"]
    order = prompts(DataSource(path, 3), 14)
    assert order == prompts(pickle.loads(pickle.dumps(DataSource(str(path), 3))), 14)
    assert sorted(order[:7]) == sorted(order[7:]) == [f"q{i}" for i in range(7)]
    assert order[:7] != order[7:] and prompts(DataSource(path, 4), 7) != order[:7]


def test_a_curriculum_is_read_in_its_order_unless_someone_says_otherwise(tmp_path):
    marked = rows(7)
    for row in marked:
        row["metadata"]["curriculum"] = True
    for path in (write(tmp_path / "t.jsonl", marked), parquet(tmp_path / "t.parquet", marked)):
        assert is_curriculum(path) and is_curriculum(f"{path}@[1:3]")
        assert prompts(DataSource(path, 3), 7) == [row["prompt"] for row in marked]
        assert prompts(DataSource(path, 3, shuffle=True), 7) != [row["prompt"] for row in marked]
    assert not is_curriculum(write(tmp_path / "u.jsonl", rows(2))) and not is_curriculum(tmp_path / "none.jsonl")


def test_rows_are_read_afresh(tmp_path):
    source = DataSource(write(tmp_path / "t.jsonl", ["", rows(1)[0], "  ", {"prompt": [], "metadata": {}}]), 0)
    both = [source.row(k) for k in range(2)]
    assert sorted(both, key=str) == [TrainingRow("q0", "a", {"context": "c0"}), TrainingRow([], None, {})]
    source.row(0).metadata["x"] = 1
    assert "x" not in source.row(0).metadata


# --- shards ----------------------------------------------------------------------------------------------------------
def test_shards_are_one_set_of_rows_in_the_order_of_their_numbers(tmp_path):
    """Nine before ten; row groups of 20 rows, which are read 16 at a time."""
    names = [str(number) for number in range(60)]
    parquet(tmp_path / "train_10.parquet", [*chats(names[50:]), *chats("x", task="gsm8k")], row_group_size=20)
    parquet(tmp_path / "train_9.parquet", chats(names[:50]), row_group_size=20)
    parquet(tmp_path / "test.parquet", chats("x"))
    for data in (tmp_path, tmp_path / "train_*.parquet"):
        source = DataSource(data, 1, shuffle=False)
        assert [prompt[0]["content"] for prompt in prompts(source, 62)] == [*names, "x", "0"]
        assert source.own_tasks == {"rank_sessions": 1, "gsm8k": 61}
        assert data_bytes(data) == sum((tmp_path / f"train_{n}.parquet").stat().st_size for n in (9, 10))


def test_a_list_is_the_files_that_it_names_in_its_order(tmp_path):
    for number, names in enumerate(("ab", "cd", "e")):
        parquet(tmp_path / f"train_{number}.parquet", chats(names))
    named = [str(tmp_path / f"train_{number}.parquet") for number in (2, 0)]
    for text in (json.dumps(named), str(named)):
        found = [prompt[0]["content"] for prompt in prompts(DataSource(text, 1, shuffle=False), 3)]
        assert found == list("eab") and store_folder(text) == store_folder(tmp_path)
        assert training_files(Config(train_data=text).with_absolute_paths().train_data) == tuple(map(Path, named))


def test_a_row_of_parquet_is_that_of_json_lines(tmp_path):
    both = chats("ab")
    both[1]["metadata"]["solution"] = "1,2"
    made = parquet(tmp_path / "t.parquet", both)
    read, lines = (DataSource(path, 1, shuffle=False) for path in (made, write(tmp_path / "t.jsonl", both)))
    assert [read.row(k) for k in (0, 1)] == [lines.row(k) for k in (0, 1)] and "solution" not in read.row(0).metadata


# --- what cannot be used ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "content", "said"), [
    ("t.jsonl", [rows(1)[0], "{broken"], "line 2"), ("t.jsonl", [rows(1)[0], '{"prompt": "x"}'], "line 2"),
    ("t.jsonl", [""], "no rows"), ("t.parquet", [{"prompt": "a"}], "metadata"),
])
def test_bad_files_name_the_line(tmp_path, name, content, said):
    path = parquet(tmp_path / name, content) if name == "t.parquet" else write(tmp_path / name, content)
    with pytest.raises(DataError, match=rf"{name}.*{said}"):
        DataSource(path, 0, shuffle=False).row(len(content) - 1)


def test_absent_files_and_shards_in_lines_are_named(tmp_path):
    for number in (0, 1):
        (tmp_path / f"a_{number}.jsonl").write_text("{}")
    for data in ("none.jsonl", "x_*.parquet", "a_*.jsonl"):
        with pytest.raises(DataError, match="TRAIN_DATA"):
            training_files(tmp_path / data)
