"""Rows of files of every kind, and of Hugging Face datasets (local folders take the same way through the library)."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.rows import BadRow, DataError, open_dataset, open_file
from mem_agent.tests.helpers.question_rows import SQUAD_FILE

ROWS = [{"question": "Who?", "n": 1}, {"question": "Wo?", "n": 2}]


def fields(path):
    return [row.fields for row in open_file(path)]


def write(path, content):
    path.write_text(content, encoding="utf-8-sig" if path.suffix == ".csv" else "utf-8", newline="")
    return path


def test_json_in_every_form_an_original_squad_file_and_parquet(tmp_path):
    lines = "\n".join(map(json.dumps, ROWS))
    for name, text in (("a.jsonl", f"{lines}\n\n"), ("a.json", " \n" + json.dumps(ROWS, indent=2)), ("a.json", lines)):
        assert fields(write(tmp_path / name, text)) == ROWS
    for indent in (None, 1):
        assert fields(write(tmp_path / "one.json", json.dumps(ROWS[0], indent=indent))) == [ROWS[0]]
        rows = fields(write(tmp_path / "squad.json", json.dumps({"version": "1.1", **SQUAD_FILE}, indent=indent)))
        assert [(row["title"], row["question"], row["answers"]["text"]) for row in rows] == [
            ("Rivers", "Which?", ["Po", "The Po", "Po"]), ("Rivers", "None?", []), ("Seas", "Q", [])]
    pq.write_table(pa.Table.from_pylist(ROWS * 40), tmp_path / "a.parquet")
    assert fields(tmp_path / "a.parquet") == ROWS * 40


@pytest.mark.parametrize(("cell", "read"), [
    ("['Paris', 'City of Paris']", ["Paris", "City of Paris"]), ("""['Paris', "O'Hare"]""", ["Paris", "O'Hare"]),
    ("[0, 1)", "[0, 1)"), ("[sic] Paris", "[sic] Paris"), ("['Paris', Rome]", None), ("['Paris', 'City", None),
    ("['Paris'\n 'Rome']", None), ("['it''s']", None), ("array(['Paris'])", None), ("[Paris, Rome]", None),
    (" ('Paris', 'Rome')", ["Paris", "Rome"]), ("{'Paris', 'Oslo'}", ["Oslo", "Paris"]), ("[ u'Paris']", ["Paris"]),
    ("{'text': ['Paris']}", {"text": ["Paris"]}), ('("Heroes")', '("Heroes")'), ("('Til) I Go", "('Til) I Go"),
])
def test_a_list_that_went_through_a_csv_is_a_list_or_a_bad_row(tmp_path, cell, read):
    quoted = cell.replace('"', '""')
    path = write(tmp_path / "a.csv", f'question,answer\nQ?,"{quoted}"\n')
    if read is None:
        with pytest.raises(BadRow, match="answer"):
            fields(path)
    else:
        assert fields(path) == [{"question": "Q?", "answer": read}]


def test_a_csv_has_texts_and_lists_where_lists_belong_also_as_pandas_writes_them(tmp_path):
    text = ('question, answers,context\r\n"Who, ""then""?","[""Ann"", ""Eve""]","Ann is.\r\nShe was."\r\n'
            '\r\nÜ?,"[0, 1)",\r\nW?,"[\'Paris\', ""O\'Hare""]","[""a"", ""b""]"\r\n')
    path = write(tmp_path / "a.csv", text)
    assert fields(path) == [
        {"question": 'Who, "then"?', "answers": ["Ann", "Eve"], "context": "Ann is.\r\nShe was."},
        {"question": "Ü?", "answers": "[0, 1)", "context": None},
        {"question": "W?", "answers": ["Paris", "O'Hare"], "context": '["a", "b"]'},
    ]


@pytest.mark.parametrize(("name", "text", "good"), [
    ("a.jsonl", '{"half\n\n[1]\n{}', ["line 4"]), ("a.csv", "a,b\n1\n1,2\n1,2,3\n", ["line 3"])])
def test_what_is_no_row_is_named_by_its_place(tmp_path, name, text, good):
    rows = list(open_file(write(tmp_path / name, text)))
    assert len(rows) == 3 and [row.where for row in rows if isinstance(row.value, dict)] == good


@pytest.mark.parametrize(("name", "text"), [
    ("cut.json", "[{}, {"), ("no.tsv", "a\tb"), ("cut.parquet", "PAR1"), ("late.csv", "a\n\"1"), ("no.json", None)])
def test_a_file_that_cannot_be_read_is_one_error_that_names_it(tmp_path, name, text):
    if text:
        write(tmp_path / name, text)
    with pytest.raises(DataError, match=name):
        list(open_file(tmp_path / name))


def test_a_split_of_a_dataset_in_shards_or_of_mixed_formats(tmp_path):
    for name in ("train-00000-of-00002", "train-00001-of-00002"):
        pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / f"{name}.parquet")
    assert len(list(open_dataset(str(tmp_path), "train"))) == 4
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "constrained.parquet")
    (tmp_path / "eval_50.json").write_text(json.dumps([{"input": "Who?"}]))
    assert [row.fields for row in open_dataset(str(tmp_path), "train")] == ROWS * 2
    with pytest.raises(DataError, match=f"{tmp_path}: split 'dev'"):
        list(open_dataset(str(tmp_path), "dev"))
