"""prepare_data --synthesize: training rows made of raw questions and documents."""

import signal
import subprocess
import sys
import time

import pytest

from mem_agent.data.document_store import DocumentStore
from mem_agent.prepare_data import main
from mem_agent.tests.helpers.question_rows import HOTPOTQA, put, rows_of


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "train.jsonl"


def synthesize(raw, out, *flags):
    return main(["--synthesize", "--raw", str(raw), "--output", str(out), "--processes", "1", *flags])


@pytest.fixture
def raw(tmp_path):
    """Twenty questions of one gold document and another each."""
    rows = [
        {"id": f"q{n}", "question": f"Who {n}?", "answer": f"answer {n}", "supporting_facts": [[f"Gold {n}", 0]],
         "context": [[f"Gold {n}", [f"It is answer {n}."]], [f"Other {n}", ["Nothing."]]]}
        for n in range(20)
    ]
    return put(tmp_path / "raw.jsonl", *rows)


def test_synthesized_rows_are_training_rows(raw, out):
    assert synthesize(raw, out, "--documents", "6", "--rows", "10") == 0
    rows = rows_of(out)
    assert len({row["prompt"] for row in rows}) == 10
    for row in rows:
        number, data = row["metadata"]["id"].removeprefix("q"), row["metadata"]
        assert row["prompt"] == f"Who {number}?" and row["label"] == f"answer {number}"
        assert data["ground_truth"] == [f"answer {number}"] and data["supporting"] == [f"Gold {number}"]
        assert data["num_docs"] == 6 == data["context"].count("Document ")
        assert f"Gold {number}\nIt is answer {number}." in data["context"]


def test_synthesized_bytes_are_a_function_of_the_options(raw, tmp_path):
    flags = ("--documents", "4:0.5 6:0.5", "--rows", "20", "--inline-context-chars", "150")
    for name, more in (("a", ()), ("b", ("--processes", "2")), ("c", ("--seed", "1"))):
        assert synthesize(raw, tmp_path / name / "train.jsonl", *flags, *more) == 0
    written = [sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()) for name in "abc"]
    a, b, c = ([path.read_bytes() for path in paths] for paths in written)
    assert a == b != c and len(a) == 4
    store = DocumentStore(tmp_path / "a" / "train.jsonl.docs")
    for row in rows_of(tmp_path / "a" / "train.jsonl"):
        data = row["metadata"]
        text = data["context"] if "context" in data else store.get(data["context_id"])
        assert text.count("Document ") == data["num_docs"]


CURRICULA = [
    ("4", (), [4] * 10),
    ("4 6", (), [4] * 5 + [6] * 5),
    ("4:0.3 6:0.3 8:0.4", (), [4] * 3 + [6] * 3 + [8] * 4),
    ("8:0.34 4:0.33 6:0.33", (), [8] * 4 + [4] * 3 + [6] * 3),
]


@pytest.mark.parametrize(("documents", "flags", "lengths"), CURRICULA)
def test_a_curriculum_of_lengths(raw, out, documents, flags, lengths):
    assert synthesize(raw, out, "--documents", documents, "--rows", "10", *flags) == 0
    assert [row["metadata"]["num_docs"] for row in rows_of(out)] == lengths
    assert synthesize(raw, out, "--documents", documents, "--rows", "10", "--mixed") == 0
    mixed = [row["metadata"]["num_docs"] for row in rows_of(out)]
    assert sorted(mixed) == sorted(lengths) and (mixed != lengths or len(set(lengths)) == 1)


WRONG_SYNTHESIS = [
    (("--rows", "21"), "21 questions"),
    (("--rows", "5", "--documents", "41"), "only 40"),
    (("--rows", "5", "--documents", "4 4"), "'4 4'"),
    (("--rows", "5", "--documents", "4:0.5 6:0.6"), "shares"),
    (("--rows", "5", "--limit", "4"), "--rows"),
    (("--rows", "5", "--published-questions", "/x"), "--rows"),
    (("--rows", "5", "--documents", "1", "--keep-distractors"), "--keep-distractors"),
    (("--rows", "5", "--raw", "/absent.json"), "/absent.json"),
]


@pytest.mark.parametrize(("flags", "reason"), WRONG_SYNTHESIS)
def test_wrong_synthesis_is_one_line_and_leaves_the_output(raw, out, capsys, flags, reason):
    out.parent.mkdir()
    out.write_text("kept")
    assert synthesize(raw, out, *flags, "--inline-context-chars", "0") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and reason in errors[0]
    assert out.read_text() == "kept" and [path.name for path in out.parent.iterdir()] == [out.name]


def test_training_rows_of_published_questions_in_the_published_layout(raw, out, tmp_path):
    named = [{"index": n, "input": f"Who {n}?"} for n in (7, 3)]
    published = put(tmp_path / "eval_50.jsonl", *named)
    flags = ("--documents", "6", "--published-questions", str(published), "--published-layout")
    assert synthesize(raw, out, *flags) == 0
    rows = rows_of(out)
    assert [row["prompt"] for row in rows] == ["Who 7?", "Who 3?"]
    for number, row in zip((7, 3), rows, strict=True):
        text = row["metadata"]["context"]
        assert f"Gold {number}\nIt is" in text and f"Other {number}\n" in text


def test_what_makes_documents_is_refused_where_none_are_made(raw, out, capsys):
    for option in (("--keep-distractors",), ("--published-layout",), ("--published-questions", "/x")):
        assert main(["--input", str(raw), "--output", str(out), *option]) == 2
        assert "are for --synthesize, which makes documents" in capsys.readouterr().err


def test_synthesis_needs_raw_files_other_than_its_output(raw, out, capsys):
    assert main(["--synthesize", "--output", str(out)]) == 2
    assert synthesize(raw, raw, "--rows", "5") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "needs --raw FILE" in errors[0] and "--output" in errors[1]


def test_an_interrupted_synthesis_leaves_nothing(tmp_path, out):
    row = HOTPOTQA | {"answer": "yes", "supporting_facts": None}
    rows = [row | {"id": f"q{n}", "context": [[f"Ann {n}", ["x" * 400]]]} for n in range(2000)]
    raw = put(tmp_path / "raw.jsonl", *rows)
    command = [sys.executable, "-m", "mem_agent.prepare_data", "--synthesize", "--raw", str(raw), "--output", str(out),
               "--rows", "2000", "--documents", "500"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    data = out.with_name("train.jsonl.docs") / "documents.bin"
    while child.poll() is None and not (data.exists() and data.stat().st_size):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.communicate()[1] == "interrupted; the earlier output, if any, is as it was\n"
    assert child.returncode == 130 and list(out.parent.iterdir()) == []
