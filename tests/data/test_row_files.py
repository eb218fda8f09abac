"""Training files of others: what cannot be read is one line that names file and row."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.row_files import DataError, open_rows

ENDLESS = pa.array([2**62], pa.timestamp("us"))
"""A moment that Python has no name for."""


def parquet(tmp_path, **fields):
    path = tmp_path / "t.parquet"
    metadata = pa.StructArray.from_arrays([pa.array(value) for value in fields.values()], list(fields))
    pq.write_table(pa.table({"prompt": ["q"], "metadata": metadata}), path, compression="zstd")
    return path


def test_a_moment_without_a_name_is_one_line(tmp_path):
    rows = open_rows(parquet(tmp_path, context=["c"], when=ENDLESS))
    with pytest.raises(DataError, match=r"t\.parquet, row 1: no readable parquet file \(date value out of range\)"):
        rows.row(0)
    with pytest.raises(DataError, match=r"t\.parquet: no readable parquet file \(date value out of range\)"):
        open_rows(parquet(tmp_path, task=ENDLESS))


@pytest.mark.parametrize("field", ["task", "context"])
def test_a_row_far_longer_than_its_file_is_refused(tmp_path, field):
    with pytest.raises(DataError, match=r"t\.parquet: row group 1 has 134\d+ bytes in \d+ of the file"):
        open_rows(parquet(tmp_path, **{field: ["x" * (1 << 27)]})).row(0)


def test_a_deep_line_is_one_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"prompt": "x", "metadata": {"task": ' + "[" * 1000 + "]" * 1000 + "}}\n")
    with pytest.raises(DataError, match=r"t\.jsonl, line 1: not JSON \(nested deeper than 64\)"):
        open_rows(path)
