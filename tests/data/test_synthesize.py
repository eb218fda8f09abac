"""Documents of a question; evaluation files: same questions, same bytes, nothing half-written; curricula."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from mem_agent.data import eval_files
from mem_agent.data.eval_files import Corpus, locked_manifest, sha256_of
from mem_agent.data.questions import PoolQuestion
from mem_agent.data.rows import DataError
from mem_agent.data.synthesize import haystack, lengths_of, main, parse_curriculum
from mem_agent.tests.helpers.raw_hotpotqa import raw_rows, split_documents


# --- documents of a question -----------------------------------------------------------------------------------------
def plain(size):
    return [f"Title {n}\nText {n}." for n in range(size)]


def question(answers=("Ann Lee",), gold=(0,), own=(), name="q"):
    return PoolQuestion(name, "Who?", tuple(answers), tuple(gold), (*gold, *own))


def test_every_document_once_and_golds_always_there():
    documents, asked = plain(60), question(gold=(3, 7), own=(5, 8))
    for length in (2, 3, 4, 30, 60):
        chosen = haystack(documents, asked, length, seed=1)
        assert len(chosen) == len(set(chosen)) == length and {3, 7} <= set(chosen)
        assert length < 4 or {5, 8} <= set(chosen)


@pytest.mark.parametrize(("answer", "text", "holds"), [
    ("Ann Lee", "She was ANN LEE.", True), ("Ann Lee", "Joann Leeds was there.", False), ("1,984", "in 1984", True),
    ("the Rock", "They call him Rock, always.", True), ("no", "There was no way to know.", False),
])
def test_distractors_never_hold_an_answer(answer, text, holds):
    documents = ["Gold\nIt is.", *(f"T{n}\n{text} {n}" for n in range(20)), *(f"U{n}\nClean {n}" for n in range(20))]
    asked = question(answers=("something else", answer), own=(1, 2))
    chosen = haystack(documents, asked, 21, seed=1)
    assert any("T" == documents[n][0] for n in chosen) is not holds


def test_the_published_layout_is_one_shuffle_for_all_questions():
    """``random.Random(4)`` puts the 10 paragraphs of any question at these places of 200 documents, counted from 1."""
    documents = [f"{text} Ann Lee" for text in plain(400)]  # strangers may hold the answer
    for first in (0, 90):
        own = range(first, first + 10)
        asked = PoolQuestion(f"q{first}", "Who?", ("Ann Lee",), (own[3],), tuple(own))
        chosen = haystack(documents, asked, 200, 1, published=True)
        assert sorted(chosen.index(n) + 1 for n in own) == [7, 10, 17, 81, 88, 96, 109, 154, 177, 191]
        shuffled = list(range(200))
        random.Random(4).shuffle(shuffled)
        assert [chosen.index(n) for n in own] == [shuffled.index(k) for k in range(10)]


# --- evaluation files ------------------------------------------------------------------------------------------------
def raw_row(number):
    titles = [f"Title {number * 4 + k}" for k in range(4)]
    context = [[title, [f"{title} is about {title.split()[1]}{'x' * 5}."]] for title in titles]
    answer = ("yes", f"answer {number}")[number % 2]
    return {"_id": f"id{number}", "question": f"Who {number}?", "answer": answer,
            "supporting_facts": [[titles[2], 0], [titles[0], 0]], "context": context}


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "raw.json"
    path.write_text(json.dumps([raw_row(number) for number in range(30)]))
    return path


def write(raw, output, *flags):
    return main(["--raw", str(raw), "--output", str(output), "--questions", "12", *flags])


def entries(output, name):
    return json.loads((output / f"eval_{name}.json").read_text())


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def titles_of(entry):
    return [text.split("\n")[0] for text in split_documents(entry["context"])]


# --- content ---------------------------------------------------------------------------------------------------------
def test_same_questions_at_every_length_with_all_gold_documents(raw, tmp_path):
    assert write(raw, tmp_path / "out", "--lengths", "4 100") == 0
    short, long = (entries(tmp_path / "out", length) for length in (4, 100))
    assert [(e["index"], e["id"], e["answers"]) for e in short] == [(e["index"], e["id"], e["answers"]) for e in long]
    for entry in long:
        assert len(set(titles_of(entry))) == entry["num_docs"] == 100
        assert set(titles_of(entry)) >= set(entry["supporting"]) and len(entry["supporting"]) == 2
    assert list(long[0]) == ["index", "id", "input", "answers", "num_docs", "supporting", "context"]


def test_equal_options_give_equal_bytes_and_the_manifest_says_what_each_file_is(raw, tmp_path):
    for name, more in (("a", ()), ("b", ()), ("c", ("--seed", "7"))):
        assert write(raw, tmp_path / name, "--lengths", "4 50", *more) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert entries(tmp_path / "c", 4) != entries(tmp_path / "a", 4)
    entry = json.loads((tmp_path / "a" / "manifest.json").read_text())["files"]["eval_4.json"]
    path = tmp_path / "a" / "eval_4.json"
    assert (entry["sha256"], entry["bytes"]) == (sha256_of(path), path.stat().st_size)
    assert entry["source"] == {
        "kind": "synthesis", "format": 2, "raw": [{"file": "raw.json", "sha256": sha256_of(raw)}],
        "questions": 12, "seed": 42, "documents": 4, "index_only": False,
    }


def test_index_only_entries_give_the_same_documents(raw, tmp_path, monkeypatch):
    assert write(raw, tmp_path / "full", "--lengths", "50") == 0
    monkeypatch.setattr(eval_files, "INDEX_ONLY_ABOVE", 49)
    assert write(raw, tmp_path / "index", "--lengths", "4 50") == 0
    corpus = Corpus(tmp_path / "index", "eval_50.json")
    for full, index in zip(entries(tmp_path / "full", 50), entries(tmp_path / "index", 50), strict=True):
        assert "context" not in index and len(index["documents"]) == 50 and corpus.context(index) == full["context"]
    with pytest.raises(DataError, match="below 120"):
        corpus.context({"documents": [500]})
    path = tmp_path / "index" / "corpus.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Title 1 ", b"Title 9 "))
    for name in ("eval_4.json", "eval_50.json"):  # of no corpus; of another
        with pytest.raises(DataError, match="corpus"):
            Corpus(tmp_path / "index", name)
    path.unlink()
    assert write(raw, tmp_path / "index", "--lengths", "4 50") == 0
    assert Corpus(tmp_path / "index", "eval_50.json")


def test_questions_that_need_no_document_stay_out(raw, tmp_path, capsys):
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"dropped": [f"id{n}" for n in range(18)]}))
    assert write(raw, tmp_path / "out", "--lengths", "100", "--closed-book", str(verdict)) == 0
    assert {entry["id"] for entry in entries(tmp_path / "out", 100)} == {f"id{n}" for n in range(18, 30)}
    verdict.write_text(json.dumps({"dropped": [f"id{n}" for n in range(19)]}))
    assert write(raw, tmp_path / "other", "--lengths", "4", "--closed-book", str(verdict)) == 1
    assert "have 11" in capsys.readouterr().err


# --- distant evidence ------------------------------------------------------------------------------------------------
def test_subsets_hold_questions_whose_evidence_is_far_apart_last_fact_first(tmp_path, capsys):
    raw, out = tmp_path / "two_facts.json", tmp_path / "out"
    raw.write_text(json.dumps(raw_rows(60, real=False)))
    flags = ("--lengths", "300", "--distant-evidence")
    assert write(raw, out, *flags) == 0 == write(raw, out, *flags)
    assert {path.name for path in out.glob("eval_*")} >= {"eval_300.json", "eval_300_min_distance_100.json"}
    rows = {row["_id"]: row for row in raw_rows(60, real=False)}
    found = entries(out, "300_min_distance_100")
    assert 0 < len(found) <= 12  # of 60; of 12 about a third would do
    for entry in found:
        facts = [title for title, _ in rows[entry["id"]]["supporting_facts"]]
        assert entry["evidence"] == [titles_of(entry).index(title) for title in facts]
        assert entry["evidence"][0] - entry["evidence"][1] == entry["min_distance"] >= 100
    assert write(raw, tmp_path / "plain", "--lengths", "300") == 0
    assert (tmp_path / "plain" / "eval_300.json").read_bytes() == (out / "eval_300.json").read_bytes()


# --- curricula -------------------------------------------------------------------------------------------------------
def test_a_curriculum_of_lengths():
    assert lengths_of(parse_curriculum("4 6"), 10) == [4] * 5 + [6] * 5
    assert lengths_of(parse_curriculum("8:0.34 4:0.33 6:0.33"), 10) == [8] * 4 + [4] * 3 + [6] * 3


# --- wrong use -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("flags", "named"), [
    (("--lengths", "50 x"), "50 x"), (("--lengths", "1"), "1 asked for"), (("--lengths", "500"), "120 in the pool"),
    (("--lengths", "4", "--questions", "31"), "31 questions"), (("--lengths", "4", "--raw", "/no.json"), "/no.json"),
    (("--lengths", "3", "--published-layout"), "--published-layout"),
])
def test_wrong_use_is_one_line_and_leaves_nothing(raw, tmp_path, capsys, flags, named):
    assert write(raw, tmp_path / "out", *flags) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and errors[0].startswith("error: ") and named in errors[0]
    assert not list((tmp_path / "out").glob("eval*"))


# --- what is there ---------------------------------------------------------------------------------------------------
def edit(name, old, new):
    return lambda output: (output / name).write_text((output / name).read_text().replace(old, new))


@pytest.mark.parametrize(("change", "flags", "named"), [
    (edit("manifest.json", '"format": 2', '"format": 1'), (), "format"),
    (edit("eval_4.json", "Who", "How"), (), "eval_4.json"), (None, ("--seed", "7"), "seed"),
    (lambda output: (output / "manifest.json").unlink(), (), "eval_4.json"),
])
def test_other_files_are_never_overwritten(raw, tmp_path, capsys, change, flags, named):
    output = tmp_path / "out"
    assert write(raw, output, "--lengths", "4") == 0
    if change:
        change(output)
    before = files(output)
    assert write(raw, output, "--lengths", "4 8", *flags) == 1
    assert named in capsys.readouterr().err and files(output) == before


def test_what_is_there_is_kept_and_one_run_writes_at_a_time(raw, tmp_path, capsys):
    output = tmp_path / "out"
    assert write(raw, output, "--lengths", "4") == 0 == write(raw, output, "--lengths", "4 8")
    assert f"{output / 'eval_4.json'}: there" in capsys.readouterr().out and len(entries(output, 8)) == 12
    with locked_manifest(output):
        assert write(raw, output, "--lengths", "4") == 1
    assert str(output) in capsys.readouterr().err


def test_a_killed_run_leaves_whole_files_and_is_continued(tmp_path):
    rows = [raw_row(number % 30) | {"_id": f"id{number}", "answer": "yes"} for number in range(1500)]
    (tmp_path / "raw.json").write_text(json.dumps(rows))
    output = tmp_path / "out"
    command = [sys.executable, "-m", "mem_agent.data.synthesize", "--raw", str(tmp_path / "raw.json"), "--output",
               str(output), "--lengths", "4 119", "--questions", "1400"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not any(draft.stat().st_size for draft in output.glob(".eval_119.json.*.tmp")):
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert not (output / "eval_119.json").exists() and len(entries(output, 4)) == 1400
    continued = subprocess.run(command, capture_output=True, text=True)
    assert continued.stdout.splitlines()[0] == f"{output / 'eval_4.json'}: there"
    assert len(entries(output, 119)) == 1400
    assert sorted(files(output)) == [".manifest.lock", "eval_119.json", "eval_4.json", "manifest.json"]
