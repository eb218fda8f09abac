"""The command that writes training data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data import sources as row_sources
from mem_agent.data.document_store import DocumentStore
from mem_agent.prepare_data import main
from mem_agent.rewards.exact_match import boxed_exact_match

ROOT = Path(__file__).resolve().parents[2]
HOTPOTQA_FILE = ROOT.parent / "shared" / "data" / "hotpotqa_distractor_60.json"

MEMAGENT = {
    "data_source": "hotpotqa",
    "prompt": [{"role": "user", "content": "Who?"}],
    "context": "Document 1:\nAnn\nAnn is.",
    "reward_model": {"style": "rule", "ground_truth": ["Ann", "Ann Lee", "Ann"]},
    "extra_info": {"index": 0, "question": "Who, again?", "num_docs": 1},
}
HOTPOTQA = {
    "id": "5a8b",
    "question": "Who?",
    "answer": "Ann",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": {"title": ["Ann"], "sent_id": [0]},
    "context": {"title": ["Ann", "Bob"], "sentences": [["Ann is.", " She was."], ["Bob is."]]},
}
HOTPOTQA_TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."
WRITTEN_MEMAGENT = {
    "prompt": "Who?",
    "label": "Ann",
    "metadata": {"ground_truth": ["Ann", "Ann Lee"], "context": "Document 1:\nAnn\nAnn is."},
}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "train.jsonl"


def put(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepare(source, out, *flags):
    return main(["--input", str(source), "--output", str(out), *flags])


def rows_of(out):
    return [json.loads(line) for line in out.read_text().splitlines()]


def without(row, field):
    return {key: value for key, value in row.items() if key != field}


# --- schemas ---------------------------------------------------------------------------------------------------------
def test_memagent_row(tmp_path, out):
    assert prepare(put(tmp_path / "in.jsonl", MEMAGENT), out) == 0
    assert rows_of(out) == [WRITTEN_MEMAGENT]


@pytest.mark.parametrize(
    "shape",
    [
        HOTPOTQA,
        HOTPOTQA | {"context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]]},
        without(HOTPOTQA, "id") | {"_id": "5a8b"},
    ],
)
def test_hotpotqa_row(tmp_path, out, shape):
    assert prepare(put(tmp_path / "in.jsonl", shape), out) == 0
    kept = {key: HOTPOTQA[key] for key in ("id", "level", "type", "supporting_facts")}
    metadata = {"ground_truth": ["Ann"], "context": HOTPOTQA_TEXT, **kept}
    assert rows_of(out) == [{"prompt": "Who?", "label": "Ann", "metadata": metadata}]


# --- documents -------------------------------------------------------------------------------------------------------
def test_long_documents_go_to_the_store(tmp_path, out):
    source = put(tmp_path / "in.jsonl", *(MEMAGENT | {"context": "x" * n} for n in (9, 10, 11, 11, 12)))
    assert prepare(source, out, "--inline-context-chars", "10") == 0
    found = [row["metadata"] for row in rows_of(out)]
    assert [len(data["context"]) for data in found[:2]] == [9, 10]
    store = DocumentStore(f"{out}.docs")
    assert [len(store.get(data["context_id"])) for data in found[2:]] == [11, 11, 12]
    assert len(store) == 2 and not any("context" in data for data in found[2:])


def test_short_documents_need_no_store(tmp_path, out):
    assert prepare(put(tmp_path / "in.jsonl", MEMAGENT), out) == 0
    assert [path.name for path in out.parent.iterdir()] == ["train.jsonl"]


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
    assert prepare(tmp_path / "in.parquet", out) == 0
    assert rows_of(out) == [WRITTEN_MEMAGENT] * 40


def test_hotpotqa_parquet(tmp_path, out):
    pq.write_table(pa.Table.from_pylist([HOTPOTQA] * 3), tmp_path / "in.parquet")
    assert prepare(tmp_path / "in.parquet", out, "--limit", "2") == 0
    assert [row["metadata"]["context"] for row in rows_of(out)] == [HOTPOTQA_TEXT] * 2


@pytest.mark.parametrize("window", [1, 7, 1 << 20])
@pytest.mark.parametrize("text", [json.dumps([HOTPOTQA] * 3), " \n" + json.dumps([HOTPOTQA] * 3, indent=2) + "\n"])
def test_json_lists_are_streamed(tmp_path, out, monkeypatch, window, text):
    monkeypatch.setattr(row_sources, "BUFFER_BYTES", window)
    (tmp_path / "in.json").write_text(text, encoding="utf-8-sig")
    assert prepare(tmp_path / "in.json", out) == 0
    assert len(rows_of(out)) == 3


BROKEN_LISTS = [
    ("[1, 2", "expected ',' behind row 2, found the end"),
    ('[{"a": "b', "not valid JSON in row 1"),
    ("[{} {}]", "expected ',' behind row 1, found '{'"),
    ("[{}, x]", "not valid JSON in row 2"),
    ("[{}] []", "text after the end of the list, behind row 1"),
]


@pytest.mark.parametrize(("text", "reason"), BROKEN_LISTS)
def test_broken_json_lists(tmp_path, out, capsys, text, reason):
    (tmp_path / "in.json").write_text(text)
    assert prepare(tmp_path / "in.json", out) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]
    assert list(out.parent.iterdir()) == []


def test_json_lines_named_json(tmp_path, out):
    assert prepare(put(tmp_path / "in.json", HOTPOTQA, HOTPOTQA), out) == 0
    assert len(rows_of(out)) == 2


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
    pq.write_table(pa.table({"reward_model": ["a"]}), folder / "context.parquet")
    put(folder / "columns.jsonl", {"text": "a"})
    (folder / "table.csv").write_text("a,b")
    return {
        "cut.parquet": "not a readable parquet file",
        "columns.parquet": "fits no known schema",
        "context.parquet": "no column context (schema memagent); found reward_model",
        "columns.jsonl": "fits no known schema",
        "table.csv": "unknown kind of file '.csv'; allowed: .parquet, .jsonl, .json",
        "absent.jsonl": "no such file",
    }


def test_unreadable_input_leaves_the_output(tmp_path, out, capsys):
    out.parent.mkdir()
    out.write_text("kept")
    for name, reason in unreadable(tmp_path).items():
        assert prepare(tmp_path / name, out) == 2, name
        assert reason in capsys.readouterr().err.splitlines()[-1]
        assert out.read_text() == "kept" and [path.name for path in out.parent.iterdir()] == [out.name]


def test_damage_inside_a_parquet_file(tmp_path, out, capsys):
    path = tmp_path / "in.parquet"
    rows = [MEMAGENT | {"context": os.urandom(500).hex()} for _ in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(0).column(2).dictionary_page_offset
    content[start : start + 2000] = b"\xff" * 2000
    path.write_bytes(content)
    assert prepare(path, out) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(out.parent.iterdir()) == []


def test_bad_outputs(tmp_path, capsys):
    source = put(tmp_path / "in.jsonl", MEMAGENT)
    assert prepare(source, source) == 2
    assert prepare(source, tmp_path) == 2
    assert prepare(source, source / "below" / "train.jsonl") == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert source.read_text() == json.dumps(MEMAGENT) + "\n"


def test_a_fifo_as_output_is_refused_in_one_line_and_stays(tmp_path, capsys):
    source, fifo = put(tmp_path / "in.jsonl", MEMAGENT), tmp_path / "fifo"
    os.mkfifo(fifo)
    assert prepare(source, fifo) == 2
    problem = "is no regular file and stays as it is; name a file to write"
    assert capsys.readouterr().err == f"error: {fifo}: {problem}\n"
    assert fifo.is_fifo() and sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "in.jsonl"]


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


def test_dataset_in_shards_and_in_json(repository, out):
    for shard in range(2):
        pq.write_table(pa.Table.from_pylist([MEMAGENT] * 3), repository / f"train-0000{shard}-of-00002.parquet")
    assert prepare_dataset(repository, out) == 0
    assert len(rows_of(out)) == 6
    other = repository.parent / "json"
    other.mkdir()
    put(other / "train.jsonl", HOTPOTQA, HOTPOTQA)
    assert prepare_dataset(other, out) == 0
    assert [row["metadata"]["context"] for row in rows_of(out)] == [HOTPOTQA_TEXT] * 2


def test_dataset_without_known_columns(repository, out, capsys):
    pq.write_table(pa.table({"text": ["a"]}), repository / "train.parquet")
    assert prepare_dataset(repository, out) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("found text")


def test_absent_dataset_and_split(repository, out, capsys):
    assert prepare_dataset(repository / "absent", out) == 2
    pq.write_table(pa.Table.from_pylist([MEMAGENT]), repository / "train.parquet")
    assert prepare_dataset(repository, out, split="dev") == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("split 'dev' cannot be loaded (it has train)")


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


def test_script_without_package_says_what_to_do(tmp_path):
    for name in ("_bootstrap.py", "prepare_data.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-ES", str(tmp_path / "prepare_data.py")]  # nothing installed, no PYTHONPATH
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "rename" in done.stderr and "pip install" in done.stderr


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
