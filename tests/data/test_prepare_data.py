"""The command that writes training data."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.document_store import DocumentStore
from mem_agent.prepare_data import main
from mem_agent.rewards.turn_rewards import supporting_titles
from mem_agent.tasks.qa import boxed_exact_match
from mem_agent.tests.helpers.question_rows import (
    COLUMNS,
    HOTPOTQA,
    HOTPOTQA_FILE,
    MEMAGENT,
    MUSIQUE,
    PLAIN,
    SQUAD,
    SQUAD_FILE,
    put,
    rows_of,
    without,
)

ROOT = Path(__file__).resolve().parents[2]
HUGGING_FACE = without(HOTPOTQA, "_id") | COLUMNS | {"id": "5a", "type": "bridge", "level": "hard"}
HOTPOTQA_TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."
WRITTEN_MEMAGENT = {
    "prompt": "Who?",
    "label": "Ann",
    "metadata": {"ground_truth": ["Ann", "Ann Lee"], "context": "Document 1:\nAnn\nAnn is."},
}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "train.jsonl"


def prepare(source, out, *flags):
    return main(["--input", str(source), "--output", str(out), *flags])


# --- schemas ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("change", [{}, {"context": HOTPOTQA["context"]}, {"id": None, "_id": "5a"}])
def test_hotpotqa_row(tmp_path, out, change):
    assert prepare(put(tmp_path / "in.jsonl", HUGGING_FACE | change), out) == 0
    kept = {key: HUGGING_FACE[key] for key in ("id", "level", "type", "supporting_facts")}
    metadata = {"ground_truth": ["Ann"], "context": HOTPOTQA_TEXT, **kept}
    assert rows_of(out) == [{"prompt": "Who?", "label": "Ann", "metadata": metadata}]


CONVERTED = [
    (PLAIN, "Ann is. She was.", ["Ann"]),
    (PLAIN | {"answer": ["Ann", 7], "context": ["Ann is.", "Bob is."]}, "Document 1:\nAnn is.\n\nDocument 2:\nBob is.",
     ["Ann", "7"]),
    (without(PLAIN, "answer") | {"answers": ["Ann"], "context": [{"title": "Ann", "text": "Ann is."}]},
     "Document 1:\nAnn\nAnn is.", ["Ann"]),
    (MUSIQUE, HOTPOTQA_TEXT, ["Ann", "Ann Lee"]),
    (SQUAD, "Ann is. She was.", ["Ann", "Ann Lee"]),
    (HUGGING_FACE, HOTPOTQA_TEXT, ["Ann"]),
    ({"id": "5a", "question": "Who?", "golden_answers": ["Ann"], "metadata": COLUMNS}, HOTPOTQA_TEXT, ["Ann"]),
]


@pytest.mark.parametrize(("row", "document", "golds"), CONVERTED)
@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "repository"])
def test_rows_of_every_shape_from_every_source(tmp_path, out, row, document, golds, kind):
    if isinstance(row.get("answer"), list):
        row = row | {"answer": list(map(str, row["answer"]))}  # a parquet column has one type
    source = tmp_path / f"train.{kind}"
    match kind:
        case "jsonl":
            put(source, row)
        case "json":
            source.write_text(json.dumps([row]))
        case "parquet":
            pq.write_table(pa.Table.from_pylist([row]), source)
        case "repository":
            source.mkdir()
            put(source / "train.jsonl", row)
    flag = "--hf-dataset" if kind == "repository" else "--input"
    assert main([flag, str(source), "--output", str(out)]) == 0
    (written,) = rows_of(out)
    assert (written["prompt"], written["label"]) == ("Who?", golds[0])
    assert (written["metadata"]["context"], written["metadata"]["ground_truth"]) == (document, golds)


CELLS = [
    ("answers", '""Ann"", ""Anna""', ["Ann", "Anna"], "c"),
    ("answer", "1, 2", ["[1, 2]"], "c"),
    ("paragraphs", '[""A"", ""x""], ""y""', ["a"], "Document 1:\nA\nx\n\nDocument 2:\ny"),
    ("context", "1, 2", ["a"], "[1, 2]"),
    ("context", '""x"", ""y""', ["a"], "Document 1:\nx\n\nDocument 2:\ny"),
]


@pytest.mark.parametrize(("column", "cell", "golds", "document"), CELLS)
def test_a_cell_of_a_csv_holds_a_list_as_json(tmp_path, out, column, cell, golds, document):
    """A list of numbers is the text of a context, as no document is one; that was a bad row."""
    cells = {"question": "Who?", "answer": "a", "context": "c"}
    if column == "answers":
        del cells["answer"]
    if column == "paragraphs":
        del cells["context"]
    cells[column] = f'"[{cell}]"'
    (tmp_path / "in.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    assert prepare(tmp_path / "in.csv", out) == 0
    assert rows_of(out)[0]["metadata"] == {"ground_truth": golds, "context": document}


def test_csv(tmp_path, out):
    text = (
        'question,answer,context,task,id\r\n'
        '"Who, ""then""?",Ann,"Ann is.\r\nShe was.",short,7\r\n'
        '\r\nWhen?,1995,"Ünïcode 東京",,\r\n'
    )
    (tmp_path / "in.csv").write_text(text, encoding="utf-8-sig", newline="")
    assert prepare(tmp_path / "in.csv", out) == 0
    extras = {"id": "7", "task": "short"}
    assert rows_of(out) == [
        {"prompt": 'Who, "then"?', "label": "Ann",
         "metadata": {"ground_truth": ["Ann"], "context": "Ann is.\r\nShe was.", **extras}},
        {"prompt": "When?", "label": "1995", "metadata": {"ground_truth": ["1995"], "context": "Ünïcode 東京"}},
    ]


@pytest.mark.parametrize("row", [MUSIQUE, SQUAD])
def test_the_evidence_of_musique_and_squad_reaches_the_row(tmp_path, out, row):
    assert prepare(put(tmp_path / "in.jsonl", row), out) == 0
    assert supporting_titles(rows_of(out)[0]["metadata"]) == ["Ann"]


def test_original_squad_files(tmp_path, out):
    (tmp_path / "train-v2.0.json").write_text(json.dumps({"version": "2.0", **SQUAD_FILE}))
    assert prepare(tmp_path / "train-v2.0.json", out) == 0
    assert [(row["prompt"], row["metadata"]["context"]) for row in rows_of(out)] == [("Which?", "The Po is long.")]


def test_questions_without_a_document_only_on_request(tmp_path, out, capsys):
    bare = without(PLAIN, "context")
    put(tmp_path / "in.jsonl", bare)
    pq.write_table(pa.Table.from_pylist([bare]), tmp_path / "in.parquet")
    for name in ("in.jsonl", "in.parquet"):
        assert prepare(tmp_path / name, out) == 1
        assert "--no-context" in capsys.readouterr().err.splitlines()[0]
        assert prepare(tmp_path / name, out, "--no-context", "--inline-context-chars", "0") == 0
        assert rows_of(out) == [{"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"]}}]
        assert [path.name for path in out.parent.iterdir()] == ["train.jsonl"]


# --- the pack's own rows ---------------------------------------------------------------------------------------------
def test_own_rows_pass_through_with_their_documents(tmp_path, out):
    first = tmp_path / "first" / "train.jsonl"
    source = put(tmp_path / "in.jsonl", MEMAGENT, PLAIN | {"context": "long " * 9, "task": "t"}, MEMAGENT)
    assert prepare(source, first, "--inline-context-chars", "30") == 0
    assert prepare(first, out, "--inline-context-chars", "0") == 0
    assert out.read_bytes() == first.read_bytes()
    for name in ("documents.bin", "index.jsonl"):
        stores = [path.with_name("train.jsonl.docs") / name for path in (first, out)]
        assert stores[0].read_bytes() == stores[1].read_bytes()


def test_own_rows_need_the_documents_that_they_name(tmp_path, out, capsys):
    row = {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context_id": "9f86d081884c7d65"}}
    source = put(tmp_path / "in.jsonl", row, row)
    assert prepare(source, out) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{source}.docs: no document store" in line and "copy the .docs folder" in line
    assert prepare(put(tmp_path / "other.jsonl", PLAIN), tmp_path / "in.jsonl.new", "--inline-context-chars", "0") == 0
    (tmp_path / "in.jsonl.new.docs").rename(tmp_path / "in.jsonl.docs")
    assert prepare(source, out) == 1
    assert f"line 1: {source}.docs has no document '9f86d081884c7d65'" in capsys.readouterr().err
    folder = tmp_path / "repository"
    folder.mkdir()
    put(folder / "train.jsonl", row)
    assert prepare_dataset(folder, out) == 2
    assert "rows name documents by id; convert their file by --input" in capsys.readouterr().err.splitlines()[-1]


# --- documents -------------------------------------------------------------------------------------------------------
def test_long_documents_go_to_the_store(tmp_path, out):
    source = put(tmp_path / "in.jsonl", *(MEMAGENT | {"context": "x" * n} for n in (9, 10, 11, 11, 12)))
    assert prepare(source, out, "--inline-context-chars", "10") == 0
    found = [row["metadata"] for row in rows_of(out)]
    assert [len(data["context"]) for data in found[:2]] == [9, 10]
    store = DocumentStore(f"{out}.docs")
    assert [len(store.get(data["context_id"])) for data in found[2:]] == [11, 11, 12]
    assert len(store) == 2 and not any("context" in data for data in found[2:])


def test_a_failed_run_leaves_earlier_files_alone(tmp_path, out):
    good = put(tmp_path / "good.jsonl", MEMAGENT)
    assert prepare(good, out, "--inline-context-chars", "0") == 0
    before = {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()}
    bad = put(tmp_path / "bad.jsonl", MEMAGENT | {"context": "another"}, {"context": 1})
    assert prepare(bad, out, "--inline-context-chars", "0", "--strict") == 1
    assert {path: path.read_bytes() for path in out.parent.rglob("*") if path.is_file()} == before


# --- files -----------------------------------------------------------------------------------------------------------
def test_parquet_from_pandas_with_arrays(tmp_path, out):
    frame = pd.DataFrame([MEMAGENT] * 40)
    frame["reward_model"] = [{"ground_truth": np.array(["Ann", "Ann Lee"], dtype=object)}] * 40
    frame.to_parquet(tmp_path / "in.parquet")
    assert prepare(tmp_path / "in.parquet", out, "--limit", "30") == 0
    assert rows_of(out) == [WRITTEN_MEMAGENT] * 30


@pytest.mark.parametrize(("indent", "around"), [(None, ""), (2, " \n")])
def test_json_lists_and_single_objects(tmp_path, out, indent, around):
    (tmp_path / "in.json").write_text(around + json.dumps([HUGGING_FACE] * 3, indent=indent) + around)
    assert prepare(tmp_path / "in.json", out) == 0
    assert len(rows_of(out)) == 3
    (tmp_path / "one.json").write_text(json.dumps(HUGGING_FACE, indent=indent))
    assert prepare(tmp_path / "one.json", out) == 0 and len(rows_of(out)) == 1
    assert prepare(put(tmp_path / "lines.json", HUGGING_FACE, HUGGING_FACE), out) == 0 and len(rows_of(out)) == 2


@pytest.mark.parametrize(("text", "reason"), [("[1, 2", "after 2 entries"), ("[{}] []", "after 1 entries")])
def test_broken_json_lists(tmp_path, out, capsys, text, reason):
    (tmp_path / "in.json").write_text(text)
    assert prepare(tmp_path / "in.json", out) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert list(out.parent.iterdir()) == []


def test_bad_rows_are_reported_and_counted(tmp_path, out, capsys):
    source = put(tmp_path / "in.jsonl", MEMAGENT)
    with source.open("a") as text:
        text.write('\n{"half\n[1]\n' + json.dumps(without(MEMAGENT, "context")) + "\n{}\n" * 30)
    assert prepare(source, out) == 0
    streams = capsys.readouterr()
    assert streams.out.strip() == f"{out}: 1 rows; 33 bad rows left out"
    lines = streams.err.splitlines()
    assert "line 3: not valid JSON" in lines[0] and "line 4: expected an object, found list" in lines[1]
    assert "line 5: context is missing" in lines[2] and "line 6: fits no known schema" in lines[3]
    assert len(lines) == 21 and lines[-1] == "prepare_data: 13 more bad rows not shown"


def test_strict_and_no_good_row(tmp_path, out, capsys):
    source = put(tmp_path / "in.jsonl", MEMAGENT, MEMAGENT | {"context": ""})
    assert prepare(source, out, "--strict") == 1
    assert "line 2: context is missing or empty (--strict" in capsys.readouterr().err
    assert prepare(put(tmp_path / "bad.jsonl", MEMAGENT | {"context": ""}), out) == 1
    assert "no good row among 1" in capsys.readouterr().err
    assert prepare(put(tmp_path / "empty.jsonl"), out) == 1
    assert list(out.parent.iterdir()) == []


def unreadable(folder):
    pq.write_table(pa.Table.from_pylist([MEMAGENT]), folder / "whole.parquet")
    (folder / "cut.parquet").write_bytes((folder / "whole.parquet").read_bytes()[:-10])
    pq.write_table(pa.table({"text": ["a"]}), folder / "columns.parquet")
    put(folder / "columns.jsonl", {"text": "a"})
    (folder / "table.csv").write_text("a,b\n1,2")
    (folder / "table.tsv").write_text("a\tb")
    return {
        "cut.parquet": "parquet", "columns.parquet": "no known schema", "columns.jsonl": "no known schema",
        "table.csv": "no known schema", "table.tsv": "'.tsv'", "absent.jsonl": "no such file",
    }


def test_unreadable_input_leaves_the_output(tmp_path, out, capsys):
    out.parent.mkdir()
    out.write_text("kept")
    for name, reason in unreadable(tmp_path).items():
        assert prepare(tmp_path / name, out) == 2, name
        assert reason in capsys.readouterr().err.splitlines()[-1]
        assert out.read_text() == "kept" and [path.name for path in out.parent.iterdir()] == [out.name]


def test_bad_outputs(tmp_path, capsys):
    source = put(tmp_path / "in.jsonl", MEMAGENT)
    assert prepare(source, source) == 2
    assert prepare(source, tmp_path) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert source.read_text() == json.dumps(MEMAGENT) + "\n"


# --- Hugging Face (local folders take the same way through the library) ----------------------------------------------
@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def prepare_dataset(folder, out, split="train"):
    return main(["--hf-dataset", str(folder), "--hf-split", split, "--output", str(out)])


def test_dataset_of_mixed_formats(repository, out):
    pq.write_table(pa.Table.from_pylist([MEMAGENT] * 5), repository / "hotpotqa_train_32k.parquet")
    pq.write_table(pa.Table.from_pylist([MEMAGENT] * 2), repository / "hotpotqa_dev.parquet")
    pq.write_table(pa.Table.from_pylist([MEMAGENT] * 2), repository / "constrained.parquet")
    (repository / "eval_50.json").write_text(json.dumps([{"input": "Who?", "context": "text", "answers": ["Ann"]}]))
    assert prepare_dataset(repository, out) == 0
    assert rows_of(out) == [WRITTEN_MEMAGENT] * 5


def test_dataset_in_shards(repository, out):
    for shard in range(2):
        pq.write_table(pa.Table.from_pylist([MEMAGENT] * 3), repository / f"train-0000{shard}-of-00002.parquet")
    assert prepare_dataset(repository, out) == 0
    assert len(rows_of(out)) == 6


def test_absent_dataset_and_split(repository, out, capsys):
    assert prepare_dataset(repository / "absent", out) == 2
    pq.write_table(pa.Table.from_pylist([MEMAGENT]), repository / "train.parquet")
    assert prepare_dataset(repository, out, split="dev") == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {repository}: split 'dev' ")


# --- as a script -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["module", "in place", "cloned"])
def test_runs_as_module_and_as_script(tmp_path, out, how):
    (tmp_path / "examples").mkdir()
    clone = tmp_path / "examples" / "mem_agent"
    clone.symlink_to(ROOT)
    command = {
        "module": ["-m", "mem_agent.prepare_data"],
        "in place": [str(ROOT / "prepare_data.py")],
        "cloned": [str(clone / "prepare_data.py")],
    }[how]
    source = put(tmp_path / "in.jsonl", MEMAGENT)
    flags = ["--input", str(source), "--output", str(out)]
    done = subprocess.run([sys.executable, *command, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows_of(out) == [WRITTEN_MEMAGENT]


def test_a_script_outside_the_pack_says_so(tmp_path):
    for name in ("_bootstrap.py", "prepare_data.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-ES", str(tmp_path / "prepare_data.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "checkout" in done.stderr


# --- real data -------------------------------------------------------------------------------------------------------
def test_real_hotpotqa(out):
    if not HOTPOTQA_FILE.exists():
        pytest.skip(f"no {HOTPOTQA_FILE.name} beside the repository")
    assert prepare(HOTPOTQA_FILE, out, "--inline-context-chars", "5000") == 0
    rows, store = rows_of(out), DocumentStore(f"{out}.docs")
    originals = json.loads(HOTPOTQA_FILE.read_text())
    for row, original in zip(rows, originals, strict=True):
        data = row["metadata"]
        context = data["context"] if "context" in data else store.get(data["context_id"])
        assert row["prompt"] == original["question"] and data["ground_truth"] == [original["answer"]]
        assert context.startswith(f"Document 1:\n{original['context']['title'][0]}\n")
        assert context.count("\n\nDocument ") == len(original["context"]["title"]) - 1
        assert boxed_exact_match(f"\\boxed{{{row['label']}}}", data["ground_truth"]) == 1.0
    assert 0 < len(store) < 60
