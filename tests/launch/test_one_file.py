"""Hosts get shards as one file: the same rows in the same order."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.data.document_store import DocumentStore, DocumentWriter, store_folder
from mem_agent.data.shards import ShardError
from mem_agent.data.training_file import DataSource
from mem_agent.launch.arguments import prompt_file
from mem_agent.launch.launch import join_shards


def shard(folder, number, names, **more):
    folder.mkdir(exist_ok=True)
    metadata = {"task": "t", **more}
    rows = [{"prompt": [{"role": "user", "content": n}], "label": "", "metadata": metadata} for n in names]
    pq.write_table(pa.Table.from_pylist(rows), folder / f"train_{number}.parquet", row_group_size=2)


def config(path, data):
    return Config(train_data=str(data), save_path=str(path / "run"))


def names(data):
    source = DataSource(data, 1, shuffle=False)
    return "".join(source.row(number).prompt[0]["content"] for number in range(len(source)))


def test_the_copy_has_the_shards_rows(tmp_path):
    data = tmp_path / "data"
    shard(data, 0, "abc"), shard(data, 1, "de")
    given = config(tmp_path, data)
    copy = tmp_path / "run" / "launch" / "train.parquet"
    assert prompt_file(given) == str(copy) and not copy.exists()
    join_shards(given)
    assert names(copy) == "abcde"
    shard(data, 2, "fg")
    join_shards(given)
    assert names(copy) == "abcdefg"


def test_documents_stay_beside_the_shards(tmp_path):
    """Hooks look for them beside the file that the host is given."""
    data = tmp_path / "data"
    shard(data, 0, "a")
    with DocumentWriter(store_folder(data)) as documents:
        identifier = documents.add("a text")
        documents.commit()
    given = config(tmp_path, data)
    for _ in range(2):
        join_shards(given)
    assert DocumentStore(store_folder(prompt_file(given))).get(identifier) == "a text"


def test_a_file_is_given_as_it_is(tmp_path):
    for name in ("/d/t.jsonl", "/d/train_0.parquet", "/d/train_0.parquet@[0:8]"):
        given = config(tmp_path, name)
        assert prompt_file(given) == name
        join_shards(given)
    assert not (tmp_path / "run").exists()


def test_shards_that_differ_or_are_not_there_are_refused(tmp_path):
    data = tmp_path / "data"
    shard(data, 0, "abc"), shard(data, 1, "de", gold=[1])
    with pytest.raises(ConfigError, match=r"train_1\.parquet"):
        join_shards(config(tmp_path, data))
    assert not (tmp_path / "run" / "launch" / "train.parquet").exists()
    with pytest.raises(ShardError, match="TRAIN_DATA"):
        join_shards(config(tmp_path, tmp_path / "none_*.parquet"))


@pytest.mark.parametrize("written", ["{}@[0:2]", "{}/train_*.parquet@[:2]"])
def test_a_slice_of_shards_is_refused_before_a_host_reads_it(tmp_path, written):
    data = tmp_path / "data"
    shard(data, 0, "abc")
    with pytest.raises(ConfigError, match="TRAIN_DATA"):
        prompt_file(config(tmp_path, written.format(data)))
    one = f"{data}/train_0.parquet@[0:2]"
    assert prompt_file(config(tmp_path, one)) == one
