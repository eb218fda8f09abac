"""A footer is parsed once for all rows of a file, and again where the file has become another."""

import os
import pickle
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.kept_footer import KeptFooter
from mem_agent.data.row_files import DataError, open_rows
from mem_agent.tests.helpers.footers import footers_in_memory, footers_parsed

ROWS = 40


def write(path, texts):
    pq.write_table(pa.table({"prompt": texts, "metadata": [{"task": "t"}] * len(texts)}), path, row_group_size=1)


def texts(rows, of):
    return [row["prompt"] for row in map(rows.row, of)]


@pytest.fixture
def rows(tmp_path):
    write(tmp_path / "a.parquet", [str(number) for number in range(ROWS)])
    return open_rows(tmp_path / "a.parquet")


def test_rows_share_one_footer(tmp_path, rows, monkeypatch):
    """Of 16,000 rows each parsed it all, and none was let go before a full garbage collection: 1.5 GB."""
    parsed = footers_parsed(monkeypatch)
    with footers_in_memory() as left:
        assert texts(rows, range(ROWS)) == [str(number) for number in range(ROWS)]
        assert parsed == Counter() and left() == 0


@pytest.mark.parametrize("again", [os.utime, lambda path: os.replace(shutil.copy(path, f"{path}.copy"), path)])
def test_a_file_that_is_touched_or_copied_is_read_by_its_own_footer(tmp_path, rows, monkeypatch, again):
    path = tmp_path / "a.parquet"
    parsed = footers_parsed(monkeypatch)
    again(path)
    assert texts(rows, [3, 2, 3]) == ["3", "2", "3"]
    assert parsed == Counter({str(path): 1})


@pytest.mark.parametrize("other", [
    [*"0123456789", *map(str, range(ROWS, 10, -1))],
    [str(number + 1) for number in range(ROWS)],
    ["other, and longer" * number for number in range(ROWS)],
    ["x"] * 3,
])
def test_a_file_that_is_written_anew_is_told(tmp_path, rows, other):
    for number in (1, 2):
        write(tmp_path / "b.parquet", other)
        os.replace(tmp_path / "b.parquet", tmp_path / "a.parquet")
        with pytest.raises(DataError, match=r"a\.parquet: has been written anew while it was read; start again"):
            rows.row(number)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: os.truncate(path, 400),
                                    lambda path: path.write_bytes(bytes(path.stat().st_size))])
def test_a_file_that_is_gone_or_damaged_is_told(tmp_path, rows, damage):
    damage(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet, row 6: no readable parquet file"):
        rows.row(5)


def test_threads_and_copies_read_the_same(rows):
    with ThreadPoolExecutor(8) as threads:
        assert [row["prompt"] for row in threads.map(rows.row, [*range(ROWS)] * 5)] == [*map(str, range(ROWS))] * 5
    assert texts(pickle.loads(pickle.dumps(rows)), [7]) == ["7"]
    assert len(pickle.dumps(KeptFooter(rows.path))) < 500


def test_a_forked_process_reads_the_same(rows):
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.write(writer, texts(rows, [9])[0].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 9) == b"9" and texts(rows, [8]) == ["8"]


def test_footers_are_let_go_as_they_are_counted(tmp_path, rows):
    """That the measure of this file sees what is kept."""
    with footers_in_memory() as left:
        kept = pq.ParquetFile(tmp_path / "a.parquet").metadata
        assert kept.schema
        del kept
        assert left() == 1
