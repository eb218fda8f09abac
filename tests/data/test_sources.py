"""Rows out of files: JSON lists that are hostile, and CSV that is not quite."""

import io
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.data import sources
from mem_agent.data.sources import Broken, NotJson, SourceError, SourceRow, json_list, open_file


def read(text):
    return list(json_list(io.BytesIO(text if isinstance(text, bytes) else text.encode())))


def nested(levels):
    return "[" * levels + "]" * levels


# --- JSON lists ------------------------------------------------------------------------------------------------------
VALUES = [
    [],
    [1, -2.5, 0.1, 1e300, 2**64 - 1, True, None, "", "a\"\\b\u0000"],
    [{"a": [{"b": []}, {}], "c": {"d": {}}}, [[1], []], "x"],
    ["\U0001f600 \\ud800", {"\U0001f600": "東京"}, "\\", "[", '{"a": "],"}'],
]
WINDOWS = pytest.mark.parametrize("window", [1, 5, 1 << 16])


@pytest.mark.parametrize("values", VALUES)
@WINDOWS
def test_elements_are_those_of_the_standard_library(monkeypatch, values, window):
    monkeypatch.setattr(sources, "BUFFER_BYTES", window)
    for text in (json.dumps(values), json.dumps(values, ensure_ascii=False, indent=1)):
        for found in (read(text), read(b"\xef\xbb\xbf\n" + text.encode() + b"\r\n")):
            assert found == values and list(map(type, found)) == list(map(type, values))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(JSON), st.sampled_from([1, 3, 64]), st.sampled_from([None, 1]), st.booleans())
def test_any_list_comes_back(values, window, indent, ascii_only):
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "BUFFER_BYTES", window)
        assert read(text) == values


@pytest.mark.parametrize("text", ["", " ", "{}", '{"a": [1]}', "7", '"[1]"', "null", '"', "x [1]"])
@WINDOWS
def test_anything_else_has_no_elements(monkeypatch, text, window):
    monkeypatch.setattr(sources, "BUFFER_BYTES", window)
    assert read(text) == []


BROKEN = [
    b"{} {}", b"x", b"", b"NaN", b"01", b"1e999x", b'{"a": 1]', b'"\xff"', b'"\t"', b'{"a" 1}', b"{'a': 1}",
    rb'"\ud800"', rb'"\uDBFF and more"', rb'"\udc00"', rb'{"\ud83d\ud83d": 1}', rb'"\\\\\ud800"',
]


@pytest.mark.parametrize("element", BROKEN)
@WINDOWS
def test_a_broken_element_harms_no_other(monkeypatch, element, window):
    """Half a Unicode character among them: ijson made a question mark of it."""
    monkeypatch.setattr(sources, "BUFFER_BYTES", window)
    first, broken, last = read(b'[{"a": 1}, ' + element + b', "]"]')
    assert isinstance(broken, Broken) and broken.problem.startswith("not valid JSON (")
    assert (first, last) == ({"a": 1}, "]")


ENDLESS = [("[", 0), ("[1, 2", 1), ('[{"a": "b', 0), ('[1, "a]', 1), ("[1, [2]", 1)]
MORE = [("[1] 2", 1), ("[1]]", 1), ("[] []", 0)]


@pytest.mark.parametrize(("text", "number"), ENDLESS + MORE)
@WINDOWS
def test_a_list_that_breaks_off_or_goes_on_is_one_line(monkeypatch, text, number, window):
    monkeypatch.setattr(sources, "BUFFER_BYTES", window)
    with pytest.raises(NotJson) as caught:
        read(text)
    reason = "text after the end of the list" if (text, number) in MORE else "the next one breaks off"
    assert str(caught.value) == f"not JSON after {number} entries ({reason})"


def test_an_endless_element_is_given_up(monkeypatch):
    monkeypatch.setattr(sources, "BUFFER_BYTES", 100)
    monkeypatch.setattr(sources, "_LONGEST_VALUE", 1000)
    with pytest.raises(NotJson, match=r"after 1 entries \(the next one is endless\)"):
        read('[1, "' + "x" * 10_000 + '"]')


@WINDOWS
def test_depth_is_bounded_and_the_elements_around_stay(monkeypatch, window):
    """100,000 levels ended in a RecursionError, and their file with them."""
    monkeypatch.setattr(sources, "BUFFER_BYTES", window)
    first, deep, deeper, last = read(f'[{nested(64)}, {nested(65)}, {{"x": {nested(20_000)}}}, "b"]')
    assert json.dumps(first) == nested(64) and last == "b"
    assert deep == deeper == Broken("nested deeper than 64")


def test_depth_costs_no_memory():
    """It grew with the square: 24,000 levels in 46 KB took 1.4 GB."""
    tracemalloc.start()
    try:
        assert read(f"[{nested(200_000)}]") == [Broken("nested deeper than 64")]
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_one_element_at_a_time_is_in_memory():
    text = json.dumps([{"a": "x" * 1_000_000, "b": ["\n" * 1000] * 100}] * 60).encode()
    tracemalloc.start()
    try:
        assert sum(1 for _ in json_list(io.BytesIO(text))) == 60
        assert tracemalloc.get_traced_memory()[1] < len(text) / 2
    finally:
        tracemalloc.stop()


def test_bad_rows_of_a_list_have_their_number(tmp_path):
    (tmp_path / "a.json").write_text(f'[{{"a": 1}}, {{"a": {nested(100_000)}}}, 7, {{"a": 2}}, {{"a" 3}}]')
    rows = list(open_file(tmp_path / "a.json").rows)
    assert [row.fields for row in rows] == [{"a": 1}, None, None, {"a": 2}, None]
    assert [(row.where, row.problem.partition(" (")[0]) for row in rows if row.fields is None] == [
        ("row 2", "nested deeper than 64"), ("row 3", "expected an object, found int"), ("row 5", "not valid JSON"),
    ]


# --- parquet ---------------------------------------------------------------------------------------------------------
def test_a_date_that_python_cannot_name_costs_its_own_row_alone(tmp_path):
    days = pa.array([0, 2**50, None, 1], pa.timestamp("s"))
    pq.write_table(pa.table({"id": days, "question": ["a", "b", "c", "d"]}), tmp_path / "a.parquet")
    rows = list(open_file(tmp_path / "a.parquet").rows)
    assert [row.fields and row.fields["question"] for row in rows] == ["a", None, "c", "d"]
    assert rows[1].where == "row 2" and rows[1].problem.startswith("cannot be read (")


def test_a_row_far_longer_than_its_file_is_one_line(tmp_path):
    """20 KB of parquet were a row of 200 MB, and 676 MB of memory."""
    pq.write_table(pa.table({"question": ["q"], "context": ["x" * (1 << 27)]}), tmp_path / "a.parquet",
                   compression="zstd")
    with pytest.raises(SourceError, match=r"a\.parquet: row group 1 has 134\d+ bytes in \d+ of the file"):
        list(open_file(tmp_path / "a.parquet").rows)


# --- JSON lines ------------------------------------------------------------------------------------------------------
def test_deep_lines_are_bad_rows(tmp_path):
    """1,000 levels were a row, and a RecursionError in whoever showed it."""
    (tmp_path / "a.jsonl").write_text(f'{{"a": {nested(63)}}}\n{{"a": {nested(64)}}}\n{{"a": {nested(1000)}}}\n')
    rows = list(open_file(tmp_path / "a.jsonl").rows)
    assert rows[0].fields is not None
    assert [(row.where, row.problem) for row in rows[1:]] == [
        ("line 2", "nested deeper than 64"), ("line 3", "nested deeper than 64")]


# --- CSV -------------------------------------------------------------------------------------------------------------
def csv(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    return open_file(tmp_path / "a.csv")


def test_csv_rows_have_the_line_where_they_begin(tmp_path):
    source = csv(tmp_path, b'\xef\xbb\xbfa, b\r\n1,"x\r\ny"\r\n\r\n,""\r\n"2",z')
    assert source.columns == ("a", "b") and source.total is None
    assert list(source.rows) == [
        SourceRow("line 2", {"a": "1", "b": "x\r\ny"}),
        SourceRow("line 5", {"a": None, "b": None}),
        SourceRow("line 6", {"a": "2", "b": "z"}),
    ]


BAD_LINES = [
    (b"1\n", "1 cells where the first line names 2 columns"),
    (b"1,2,3\n", "3 cells where the first line names 2 columns"),
    (b"1,\0\n", "holds a NUL byte"),
    (b"1,\xff\n", "not UTF-8"),
    (b'1,"2"3\n', "not valid CSV"),
    (b'1,"2\n', "not valid CSV"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_LINES)
def test_bad_lines_of_csv_are_bad_rows(tmp_path, line, problem):
    source = csv(tmp_path, b"a,b\nx,y\n" + line + (b"" if b'"2\n' in line else b"3,4\n"))
    rows = list(source.rows)
    assert rows[0].fields == {"a": "x", "b": "y"}
    assert rows[1].where == "line 3" and rows[1].fields is None and problem in rows[1].problem
    assert [row.fields for row in rows[2:]] in ([], [{"a": "3", "b": "4"}])


def test_long_cells_are_read_and_endless_ones_are_not(tmp_path, monkeypatch):
    (row,) = csv(tmp_path, b"a\n" + b"x" * 300_000).rows
    assert len(row.fields["a"]) == 300_000
    monkeypatch.setattr(sources, "_LONGEST_CELL", 1000)
    first, last = csv(tmp_path, b'a\n"' + b"x" * 2000 + b'"\ny').rows
    assert "field larger than field limit" in first.problem and last.fields == {"a": "y"}


def test_a_cell_that_is_too_deep_for_a_list_is_its_text(tmp_path):
    for levels, kind in ((64, list), (65, str)):
        (row,) = csv(tmp_path, f'context\n"{nested(levels)}"\n'.encode()).rows
        assert type(row.fields["context"]) is kind


@pytest.mark.parametrize("content", [b"", b"\n", b"a,a\n1,2", b'"a'])
def test_csv_without_names_is_one_line(tmp_path, content):
    with pytest.raises(SourceError, match=r"a\.csv: (the first line must name columns|cannot be read)"):
        csv(tmp_path, content)
