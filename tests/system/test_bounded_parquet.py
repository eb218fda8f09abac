"""A row group is read if what the footer says of it is in proportion to the file; and in pieces that fit memory."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.system import bounded_parquet
from mem_agent.system.bounded_parquet import TooMuchInside, batches, buffer_size, check_file, check_group, row_counts

BYTES, VALUES = 1 << 16, 1 << 10
"""In place of the true bounds, which take seconds to write."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bounded_parquet, "_BYTES", BYTES)
    monkeypatch.setattr(bounded_parquet, "_VALUES", VALUES)


def lengths(tmp_path, column, rows=16, **options):
    """Of the batches in which a file of this column is read."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column}), path, compression="zstd", **options)
    with pq.ParquetFile(path) as file:
        return [len(batch) for batch in batches(file, path, rows)]


def words(count):
    return " ".join(str(number * 7919 % 100_003) for number in range(count))


def test_texts_are_read_however_long_they_are(tmp_path):
    assert lengths(tmp_path, [words(BYTES)] * 3, use_dictionary=False) == [1, 1, 1]
    assert lengths(tmp_path, [words(BYTES // 64)] * 40, row_group_size=20, use_dictionary=False) == [1] * 40
    assert lengths(tmp_path, ["x" * 9, "y", "z"] * 10, row_group_size=20) == [16, 4, 10]


def test_lists_of_a_value_for_each_byte_are_read(tmp_path):
    assert lengths(tmp_path, [[number * 7919 for number in range(VALUES)]] * 4) == [4]


@pytest.mark.parametrize(("column", "what"), [
    (["a" * (BYTES + 1)], rf"row group 1 has {BYTES + 34} bytes in \d+ of the file"),
    ([words(9), "b" * 3 * BYTES], "row group 1 has"),
    ([["a"] * (VALUES + 1)], rf"row group 1 has {VALUES + 1} values in the lists of x\.list\.element"),
    ([[], [{"y": [0] * (VALUES + 1)}]], r"values in the lists of x\.list\.element\.y\.list\.element"),
])
def test_repetition_is_refused(tmp_path, column, what):
    with pytest.raises(TooMuchInside, match=what) as refused:
        lengths(tmp_path, column, use_dictionary=["x.list.element", "x.list.element.y.list.element"])
    told = str(refused.value)
    assert told.startswith(f"{tmp_path}/a.parquet: ") and "row_group_size=16" in told and "\n" not in told


def test_many_lists_that_share_their_texts_are_read(tmp_path):
    text = words(BYTES // 64)
    assert sum(lengths(tmp_path, [[text] * 2] * 200, dictionary_pagesize_limit=1 << 30)) == 200


def test_a_file_of_many_groups_is_not_read_at_once(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"x": ["a" * (BYTES - 200)] * 9, "y": range(9)})
    pq.write_table(table, path, row_group_size=1, compression="zstd")
    metadata = pq.read_metadata(path)
    with pytest.raises(TooMuchInside, match=r"a\.parquet: has \d+ bytes in \d+ of the file, more than"):
        check_file(metadata, path)
    check_file(metadata, path, ["y"])


def test_many_rows_of_one_value_are_no_list(tmp_path):
    assert sum(lengths(tmp_path, ["a"] * 9 * VALUES, rows=VALUES)) == 9 * VALUES


def test_a_file_of_a_row_for_each_byte_is_read(tmp_path, monkeypatch):
    """However little the column that is asked for says of each: rows have others."""
    monkeypatch.setattr(bounded_parquet, "_ROWS", 100)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": range(3000), "y": ["same"] * 3000}), path, compression="zstd", row_group_size=500)
    assert 100 < 3000 < path.stat().st_size
    with pq.ParquetFile(path) as file:
        assert [len(batch) for batch in batches(file, path, 1000, ["y"])] == [500] * 6
        assert row_counts(file.metadata, path) == [500] * 6
        check_file(file.metadata, path, ["y"])


@pytest.mark.parametrize("groups", [1, 20])
def test_far_more_rows_than_bytes_are_refused(tmp_path, monkeypatch, groups):
    """Of 6 KB, ``prepare`` wrote a million rows."""
    monkeypatch.setattr(bounded_parquet, "_ROWS", 99_999)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["a"] * 100_000, "y": pa.nulls(100_000)}), path, row_group_size=100_000 // groups)
    assert path.stat().st_size < 10_000
    with pq.ParquetFile(path) as file:
        for read in (lambda: next(batches(file, path, 16)), lambda: next(batches(file, path, 16, [])),
                     lambda: check_file(file.metadata, path, ["x"]), lambda: row_counts(file.metadata, path)):
            with pytest.raises(TooMuchInside, match=r"a\.parquet: has 100000 rows in \d+ bytes, more than"):
                read()
        assert next(batches(file, path, 16, size=100_000))
        assert row_counts(file.metadata, path, [0] * (groups - 1)) == [5000] * (groups - 1)


def test_a_long_text_that_all_rows_share_is_read_a_row_at_a_time(tmp_path):
    """It is in the file once, and was in memory sixteen times."""
    assert lengths(tmp_path, [words(BYTES // 8)] * 5, dictionary_pagesize_limit=1 << 30) == [1] * 5


@pytest.mark.parametrize("levels", ["one_level", "three_levels"])
def test_a_damaged_footer_raises_as_reading_does(levels):
    """Arrow ended the process where such a column's sizes were asked for first."""
    path = Path(__file__).parents[1] / "fuzz" / "found" / "stage_parquet" / f"abort_in_column_of_{levels}"
    with pq.ParquetFile(path) as file, pytest.raises(OSError, match="level histogram size mismatch"):
        list(batches(file, path, 16))


def test_a_group_is_looked_at_without_its_pages(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [[1, 2], [3]], "y": ["a", "b"]}), path)
    metadata = pq.read_metadata(path)
    path.unlink()
    assert check_group(metadata, path, 0, ["y"]) < check_group(metadata, path, 0)


def test_files_whose_columns_are_long_are_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded_parquet, "_WHOLE", 9)
    (tmp_path / "a").write_bytes(b"x" * 9), (tmp_path / "b").write_bytes(b"x" * 10)
    assert (buffer_size(tmp_path / "a"), buffer_size(tmp_path / "b")) == (0, 1 << 20)


def test_what_a_page_says_of_its_length_takes_no_memory(tmp_path):
    """Of 3 KB it took 1.4 GB and two seconds."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["a" * 40, "b" * 30] * 50}), path, use_dictionary=False)
    whole = path.read_bytes()
    header = whole.index(b"\x15\x00\x15", 4)  # a data page, then its length unpacked and packed, of three bytes or two
    packed = whole.index(b"\x15", header + 3) + 1
    path.write_bytes(whole[:packed] + varint(2 * 1_400_000_000) + whole[whole.index(b"\x2c", packed):])
    peak = pa.default_memory_pool().max_memory()
    file = pq.ParquetFile(path, buffer_size=buffer_size(path), pre_buffer=False)
    with file, pytest.raises(OSError, match="1400000000"):
        list(batches(file, path, 16))
    assert pa.default_memory_pool().max_memory() <= max(peak, 1 << 28)


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])
