"""Training files of others: what cannot be read is one line that names file and row."""

from contextlib import nullcontext

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


LINES = [f'{{"prompt": "q{number}", "metadata": {{}}}}' for number in range(3)]


@pytest.mark.parametrize("number,content,said", [
    (1, "\n".join(LINES), None), (2, "\n".join([*LINES, LINES[0]]), None), (2, "\n".join(LINES) + "\n", None),
    (0, "\n".join([*LINES[::-1]]), "has been written anew while it was read; start again"),
    (1, "\n".join(["", *LINES]), "has been written anew while it was read; start again"),
    (2, LINES[0], "has been written anew while it was read; start again"),
    (2, "", "has been written anew while it was read; start again"),
    (1, None, r"cannot be read any more \(No such file or directory\); start again"),
])
def test_a_file_of_lines_that_is_written_while_it_is_read_has_the_row_or_is_told(tmp_path, number, content, said):
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(LINES))
    rows = open_rows(path)
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=rf"t\.jsonl: {said}") if said else nullcontext():
        assert rows.row(number)["prompt"] == f"q{number}"


@pytest.mark.parametrize("field", ["task", "other"])
def test_rows_that_take_no_bytes_are_refused(tmp_path, field):
    """Their number was taken from the footer, and a list of it made for the shuffling."""
    path, nothing = tmp_path / "t.parquet", pa.nulls(3 << 19, pa.string())
    pq.write_table(pa.table({"prompt": nothing, "metadata": pa.StructArray.from_arrays([nothing], [field])}), path)
    with pytest.raises(DataError, match=r"t\.parquet: has 1572864 rows in \d+ bytes, more than 1048576"):
        open_rows(path)


def test_less_than_no_rows_are_one_line(tmp_path):
    """The length of such a file was a traceback."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"prompt": ["q"] * 61, "metadata": [{"id": "i"}] * 61}), path, use_dictionary=False)
    said = b"\x16\x7a"  # 61, as the format writes it; and -62
    path.write_bytes(path.read_bytes().replace(said, b"\x16\x7b"))
    with pytest.raises(DataError, match=r"t\.parquet: says of a row group that it has -62 rows"):
        open_rows(path)
