"""The command that writes training data."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.document_store import DocumentStore
from mem_agent.data.training_file import DataSource
from mem_agent.prepare_data import main
from mem_agent.tests.helpers.question_rows import HOTPOTQA, MEMAGENT, MUSIQUE, PLAIN, put, without
from mem_agent.tests.helpers.raw_hotpotqa import raw_rows

TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "train.jsonl"


def prepare(source, out, *flags):
    return main(["--input", str(source), "--output", str(out), *flags])


def synthesize(raw, out, *flags):
    return main(["--synthesize", "--raw", str(raw), "--output", str(out), *flags])


def rows_of(path):
    return list(map(json.loads, path.read_text().splitlines()))


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rows_of_parquet_and_of_the_hub(tmp_path, out):
    source = tmp_path / "hub" / "train.parquet"
    source.parent.mkdir()
    pq.write_table(pa.Table.from_pylist([MUSIQUE]), source)
    for flag, name in (("--input", source), ("--hf-dataset", source.parent)):
        assert main([flag, str(name), "--output", str(out)]) == 0
        assert rows_of(out) == [{"prompt": "Who?", "label": "Ann", "metadata": {
            "id": "2hop__1", "ground_truth": ["Ann", "Ann Lee"], "context": TEXT, "supporting": ["Ann"]}}]


def test_questions_without_a_document_are_for_chat_and_bad_beside_others(tmp_path, out, capsys):
    bare = without(PLAIN, "context")
    assert prepare(put(tmp_path / "in.jsonl", bare), out) == 0 and "AGENT=chat" in capsys.readouterr().err
    assert rows_of(out) == [{"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"]}}]
    assert prepare(put(tmp_path / "in.jsonl", PLAIN, bare, PLAIN), out) == 0
    assert "line 2: context" in capsys.readouterr().err and len(rows_of(out)) == 2


def test_long_documents_go_to_the_store(tmp_path, out):
    sizes = [20_000, 20_001, 20_001, 20_002]
    assert prepare(put(tmp_path / "in.jsonl", *(MEMAGENT | {"context": "x" * n} for n in sizes)), out) == 0
    inline, *others = [row["metadata"] for row in rows_of(out)]
    assert len(inline["context"]) == 20_000 and not any("context" in data for data in others)
    stored = [len(DocumentStore(f"{out}.docs").get(data["context_id"])) for data in others]
    assert stored == sizes[1:] and len(files(out.parent)) == 3


def test_every_fault_of_a_file_is_named_and_counted(tmp_path, out, capsys):
    """A tenth of the rows cannot be used; ten repeat an id, which is a fault where documents are made for them."""
    rows = [HOTPOTQA | {"_id": f"q{n % 890}", "question": f"Who {n}?"} for n in range(900)]
    faults = [{"context": []}, {"answer": ""}, {"question": None}, {"context": [["Ann", "a", "b"]]}]
    rows += [HOTPOTQA | {"_id": f"bad{n}"} | faults[n % 4] for n in range(100)]
    assert prepare(put(tmp_path / "in.jsonl", *rows), out) == 0
    streams = capsys.readouterr()
    lines = streams.err.splitlines()
    assert "900 rows" in streams.out and "100 bad rows" in streams.out and len(lines) == 21
    assert "line 901: context is blank" in lines[0] and "line 902: answer is missing or empty; use rows" in lines[1]
    assert "80 more" in lines[20] and "25 x answer is missing or empty" in lines[20]
    assert len(rows_of(out)) == 900
    assert synthesize(tmp_path / "in.jsonl", out, "--rows", "890", "--documents", "2") == 0
    assert "890 rows" in (said := capsys.readouterr().out) and "110 questions left out" in said


def test_a_failed_run_leaves_earlier_files_alone(tmp_path, out, capsys):
    assert prepare(put(tmp_path / "good.jsonl", MEMAGENT | {"context": "x" * 20_001}), out) == 0
    before = files(out.parent)
    put(tmp_path / "columns.jsonl", {"text": "a"})
    (tmp_path / "late.csv").write_text('question,answer,context\nWho?,Ann,' + "y" * 20_001 + '\nWho?,Ann,"\n')
    for name, code in (("columns.jsonl", 1), ("late.csv", 2), ("table.tsv", 2)):
        assert prepare(tmp_path / name, out) == code
        assert name in capsys.readouterr().err.splitlines()[-1] and before.items() <= files(out.parent).items()
    assert prepare(tmp_path / "good.jsonl", tmp_path / "good.jsonl") == 2
    assert len(rows_of(tmp_path / "good.jsonl")) == 1


def test_a_curriculum_is_a_function_of_the_options_and_trained_on_in_its_order(tmp_path):
    raw, asked = put(tmp_path / "raw.jsonl", *raw_rows(20)), {row["question"]: row for row in raw_rows(20)}
    flags = ("--documents", "4:0.3 6:0.3 8:0.4", "--rows", "10")
    for name, more in (("a", ()), ("b", ()), ("c", ("--seed", "1"))):
        assert synthesize(raw, tmp_path / name / "train.jsonl", *flags, *more) == 0
    a, b, c = (files(tmp_path / name) for name in "abc")
    assert a == b != c
    source = DataSource(tmp_path / "a" / "train.jsonl", 1)
    for row, length in zip(map(source.row, range(10)), [4] * 3 + [6] * 3 + [8] * 4, strict=True):
        given = asked[row.prompt]
        assert (row.label, row.metadata["id"]) == (given["answer"], given["_id"])
        assert set(row.metadata["supporting"]) == {title for title, _ in given["supporting_facts"]}
        assert row.metadata["num_docs"] == length == row.metadata["context"].count("Document ")
