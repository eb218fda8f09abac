"""The command that writes training data."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.document_store import DocumentStore
from mem_agent.data.training_file import DataSource
from mem_agent.prepare_data import main
from mem_agent.tests.helpers.question_rows import (
    COLUMNS,
    HOTPOTQA,
    MEMAGENT,
    MUSIQUE,
    PLAIN,
    put,
    rows_of,
    without,
)

ROOT = Path(__file__).resolve().parents[2]
TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."
FLASHRAG = {"id": "5a", "question": "Who?", "golden_answers": ["Ann"], "metadata": COLUMNS}
DOCUMENT = "Document 1:\nAnn\nAnn is."
WRITTEN_MEMAGENT = {"prompt": "Who?", "label": "Ann",
                    "metadata": {"ground_truth": ["Ann", "Ann Lee"], "context": DOCUMENT}}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "train.jsonl"


def prepare(source, out, *flags):
    return main(["--input", str(source), "--output", str(out), *flags])


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- rows of every shape ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("row", "document", "golds", "kind"), [
    (MUSIQUE, TEXT, ["Ann", "Ann Lee"], "parquet"), (FLASHRAG, TEXT, ["Ann"], "jsonl"),
    (PLAIN, "Ann is. She was.", ["Ann"], "repository"),
])
def test_rows_of_every_source(tmp_path, out, row, document, golds, kind):
    source = tmp_path / f"train.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), source)
    elif kind == "repository":
        source.mkdir()
    if kind != "parquet":
        put(source / "train.jsonl" if kind == "repository" else source, row)
    assert main(["--hf-dataset" if kind == "repository" else "--input", str(source), "--output", str(out)]) == 0
    (written,) = rows_of(out)
    assert (written["prompt"], written["label"]) == ("Who?", golds[0])
    assert (written["metadata"]["context"], written["metadata"]["ground_truth"]) == (document, golds)


def test_questions_without_a_document_are_for_chat_and_bad_beside_others(tmp_path, out, capsys):
    source = put(tmp_path / "in.jsonl", without(PLAIN, "context"))
    assert prepare(source, out) == 0 and "AGENT=chat" in capsys.readouterr().err
    assert rows_of(out) == [{"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"]}}]
    source = put(tmp_path / "in.jsonl", PLAIN, without(PLAIN, "context"), PLAIN)
    assert prepare(source, out) == 0 and "line 2: context" in capsys.readouterr().err and len(rows_of(out)) == 2


# --- documents -------------------------------------------------------------------------------------------------------
def test_long_documents_go_to_the_store(tmp_path, out):
    sizes = (20_000, 20_001, 20_001, 20_002)
    assert prepare(put(tmp_path / "in.jsonl", *(MEMAGENT | {"context": "x" * n} for n in sizes)), out) == 0
    found = [row["metadata"] for row in rows_of(out)]
    store = DocumentStore(f"{out}.docs")
    assert len(found[0]["context"]) == 20_000 and not any("context" in data for data in found[1:])
    assert tuple(len(store.get(data["context_id"])) for data in found[1:]) == sizes[1:]
    assert len(files(store.path)) == 2


# --- what goes wrong -------------------------------------------------------------------------------------------------
def test_every_fault_of_a_file_is_named_and_counted(tmp_path, out, capsys):
    """A tenth of the rows cannot be used; ten repeat an id."""
    rows = [HOTPOTQA | {"_id": f"q{n % 890}", "question": f"Who {n}?"} for n in range(900)]
    faults = [{"context": []}, {"answer": ""}, {"question": None}, {"context": [["Ann", "a", "b"]]}]
    rows += [HOTPOTQA | {"_id": f"bad{n}"} | faults[n % 4] for n in range(100)]
    assert prepare(put(tmp_path / "in.jsonl", *rows), out) == 0
    streams = capsys.readouterr()
    lines = streams.err.splitlines()
    assert "900 rows" in streams.out and "100 bad rows" in streams.out and len(lines) == 22
    assert "line 901: context is blank" in lines[0] and "line 902: answer is missing or empty; use rows" in lines[1]
    assert "80 more" in lines[20] and "25 x answer is missing or empty" in lines[20]
    assert "10 rows repeat an id (line 891 has the id of line 1)" in lines[21] and len(rows_of(out)) == 900
    assert synthesize(tmp_path / "in.jsonl", out, "--rows", "890", "--documents", "2") == 0
    streams = capsys.readouterr()
    assert "890 rows" in streams.out and "110 questions left out" in streams.out and "line 891: " in streams.err


def test_a_failed_run_leaves_earlier_files_alone(tmp_path, out, capsys):
    assert prepare(put(tmp_path / "good.jsonl", MEMAGENT | {"context": "x" * 20_001}), out) == 0
    before = files(out.parent)
    capsys.readouterr()
    put(tmp_path / "columns.jsonl", {"text": "a"})
    (tmp_path / "late.csv").write_text('question,answer,context\nWho?,Ann,' + "y" * 20_001 + '\nWho?,Ann,"\n')
    for name, code in (("columns.jsonl", 1), ("late.csv", 2), ("table.tsv", 2)):
        assert prepare(tmp_path / name, out) == code
        assert name in capsys.readouterr().err.splitlines()[-1] and files(out.parent) == before
    assert prepare(tmp_path / "good.jsonl", tmp_path / "good.jsonl") == 2
    assert len(rows_of(tmp_path / "good.jsonl")) == 1


# --- as a script -----------------------------------------------------------------------------------------------------
def test_runs_as_a_script_of_a_clone(tmp_path, out):
    clone = tmp_path / "examples" / "mem_agent"
    clone.parent.mkdir()
    clone.symlink_to(ROOT)
    flags = ["--input", str(put(tmp_path / "in.jsonl", MEMAGENT)), "--output", str(out)]
    command = [sys.executable, str(clone / "prepare_data.py"), *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr, rows_of(out)) == (0, "", [WRITTEN_MEMAGENT])


# --- synthesis -------------------------------------------------------------------------------------------------------
def synthesize(raw, out, *flags):
    return main(["--synthesize", "--raw", str(raw), "--output", str(out), *flags])


@pytest.fixture
def raw(tmp_path):
    """Twenty questions of one gold document and another each."""
    return put(tmp_path / "raw.jsonl", *(
        {"id": f"q{n}", "question": f"Who {n}?", "answer": f"answer {n}", "supporting_facts": [[f"Gold {n}", 0]],
         "context": [[f"Gold {n}", [f"It is answer {n}."]], [f"Other {n}", ["Nothing."]]]} for n in range(20)))


def test_a_curriculum_is_a_function_of_the_options_and_trained_on_in_its_order(raw, tmp_path):
    flags = ("--documents", "4:0.3 6:0.3 8:0.4", "--rows", "10")
    for name, more in (("a", ()), ("b", ()), ("c", ("--seed", "1"))):
        assert synthesize(raw, tmp_path / name / "train.jsonl", *flags, *more) == 0
    a, b, c = (files(tmp_path / name) for name in "abc")
    assert a == b != c
    for row in rows_of(tmp_path / "a" / "train.jsonl"):
        number, data = row["metadata"]["id"].removeprefix("q"), row["metadata"]
        assert row["prompt"] == f"Who {number}?" and row["label"] == f"answer {number}" and data["curriculum"]
        assert data["ground_truth"] == [f"answer {number}"] and data["supporting"] == [f"Gold {number}"]
        assert data["num_docs"] == data["context"].count("Document ")
    source = DataSource(tmp_path / "a" / "train.jsonl", 1)
    assert [source.row(group).metadata["num_docs"] for group in range(10)] == [4] * 3 + [6] * 3 + [8] * 4


@pytest.mark.parametrize(("flags", "named"), [
    (("--rows", "21"), "21 questions"), (("--rows", "5", "--documents", "41"), "40 in the pool"),
    (("--rows", "5", "--documents", "4 4"), "'4 4'"), (("--rows", "5", "--documents", "4:0.5 6:0.6"), "shares"),
    (("--rows", "5", "--limit", "4"), "--limit"), (("--rows", "5", "--raw", "/absent.json"), "/absent.json"),
])
def test_wrong_synthesis_is_one_line_and_leaves_the_output(raw, out, capsys, flags, named):
    out.parent.mkdir()
    out.write_text("kept")
    assert synthesize(raw, out, *flags) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and named in errors[0]
    assert out.read_text() == "kept" and [path.name for path in out.parent.iterdir()] == [out.name]
