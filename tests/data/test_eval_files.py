"""The command that writes evaluation files: same questions, same bytes, nothing half-written."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mem_agent.data import eval_files
from mem_agent.data.corpus_file import CorpusFileError, open_corpus, read_context
from mem_agent.data.eval_files import main
from mem_agent.data.manifest import sha256_of
from mem_agent.tests.helpers.question_rows import HOTPOTQA_FILE


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
    return main(["--raw", str(raw), "--output", str(output), "--questions", "12", "--processes", "1", *flags])


def entries(output, length):
    return json.loads((output / f"eval_{length}.json").read_text())


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def documents_of(entry):
    parts = ("\n\n" + entry["context"]).split("\n\nDocument ")[1:]
    numbers, texts = zip(*(part.split(":\n", 1) for part in parts), strict=True)
    assert list(map(int, numbers)) == list(range(1, entry["num_docs"] + 1))
    return texts


# --- content ---------------------------------------------------------------------------------------------------------
def test_same_questions_at_every_length_with_all_gold_documents(raw, tmp_path):
    assert write(raw, tmp_path / "out", "--lengths", "4 20 100") == 0
    short, middle, long = (entries(tmp_path / "out", length) for length in (4, 20, 100))
    for each in zip(short, middle, long, strict=True):
        assert len({json.dumps([e["index"], e["id"], e["input"], e["answers"]]) for e in each}) == 1
    for entry in long:
        texts = documents_of(entry)
        assert len(set(texts)) == entry["num_docs"] == 100
        assert {text.split("\n")[0] for text in texts} >= set(entry["supporting"]) and len(entry["supporting"]) == 2
    assert [entry["index"] for entry in long] == list(range(12))
    assert list(long[0]) == ["index", "id", "input", "answers", "num_docs", "supporting", "context"]


def test_equal_options_give_equal_bytes_on_any_number_of_processes(raw, tmp_path):
    lengths = ("--lengths", "4 50", "--index-only-above", "20")
    assert write(raw, tmp_path / "a", *lengths) == write(raw, tmp_path / "b", *lengths, "--processes", "3") == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert write(raw, tmp_path / "c", *lengths, "--seed", "7") == 0
    assert entries(tmp_path / "c", 4) != entries(tmp_path / "a", 4)


def test_the_manifest_says_what_each_file_is(raw, tmp_path):
    assert write(raw, tmp_path / "out", "--lengths", "4") == 0
    entry = json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]["eval_4.json"]
    path = tmp_path / "out" / "eval_4.json"
    assert (entry["sha256"], entry["bytes"]) == (sha256_of(path), path.stat().st_size)
    assert entry["source"] == {
        "kind": "synthesis", "format": 2, "raw": [{"file": "raw.json", "sha256": sha256_of(raw)}],
        "questions": 12, "seed": 42, "documents": 4, "index_only": False,
    }


def test_index_only_entries_give_the_same_documents(raw, tmp_path):
    assert write(raw, tmp_path / "full", "--lengths", "50") == 0
    assert write(raw, tmp_path / "index", "--lengths", "50", "--index-only-above", "49") == 0
    corpus = open_corpus(tmp_path / "index", "eval_50.json")
    for full, index in zip(entries(tmp_path / "full", 50), entries(tmp_path / "index", 50), strict=True):
        assert "context" not in index and len(index["documents"]) == 50
        assert read_context(index, lambda: corpus) == full["context"] == read_context(full, lambda: corpus)
    with pytest.raises(CorpusFileError, match="no document 500 among 120"):
        corpus[500]
    corpus.close()


def test_a_corpus_of_something_else_is_refused(raw, tmp_path):
    assert write(raw, tmp_path / "out", "--lengths", "4 50", "--index-only-above", "49") == 0
    with pytest.raises(CorpusFileError, match="does not say which"):
        open_corpus(tmp_path / "out", "eval_4.json")
    corpus = tmp_path / "out" / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes().replace(b"Title 1 ", b"Title 9 "))
    with pytest.raises(CorpusFileError, match="is not the corpus"):
        open_corpus(tmp_path / "out", "eval_50.json")
    corpus.unlink()
    with pytest.raises(CorpusFileError, match="no such file"):
        open_corpus(tmp_path / "out", "eval_50.json")
    assert write(raw, tmp_path / "out", "--lengths", "4 50", "--index-only-above", "49") == 0
    assert len(open_corpus(tmp_path / "out", "eval_50.json")) == 120


def test_questions_that_need_no_document_stay_out(raw, tmp_path, capsys):
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"dropped": [f"id{n}" for n in range(18)]}))
    assert write(raw, tmp_path / "out", "--lengths", "100", "--closed-book", str(verdict)) == 0
    assert {entry["id"] for entry in entries(tmp_path / "out", 100)} == {f"id{n}" for n in range(18, 30)}
    verdict.write_text(json.dumps({"dropped": [f"id{n}" for n in range(19)]}))
    assert write(raw, tmp_path / "other", "--lengths", "4", "--closed-book", str(verdict)) == 1
    assert "have 11 (19 more were dropped by" in capsys.readouterr().err


def test_hard_distractors_and_published_layout(raw, tmp_path):
    """Every question's four paragraphs; in the published layout they stand at the same places for all questions."""
    assert write(raw, tmp_path / "clean", "--lengths", "20") == 0
    rows = {f"id{number}": {title for title, _ in raw_row(number)["context"]} for number in range(30)}
    places = set()
    for option in ("--keep-distractors", "--published-layout"):
        out = tmp_path / option
        assert write(raw, out, "--lengths", "20", option) == 0
        for entry in entries(out, 20):
            titles = [text.split("\n")[0] for text in documents_of(entry)]
            places.add((option, tuple(sorted(titles.index(title) for title in rows[entry["id"]]))))
        source = json.loads((out / "manifest.json").read_text())["files"]["eval_20.json"]["source"]
        assert source["layout"] == option.removeprefix("--")
        assert [e["id"] for e in entries(out, 20)] == [e["id"] for e in entries(tmp_path / "clean", 20)]
    assert sum(option == "--published-layout" for option, _ in places) == 1 and len(places) > 3


# --- wrong use -------------------------------------------------------------------------------------------------------
WRONG = [
    (("--lengths", "50 x"), "50 200"),
    (("--lengths", "1"), "2 gold documents"),
    (("--lengths", "500"), "only 120 can be used"),
    (("--lengths", "4", "--questions", "31"), "31 questions"),
    (("--lengths", "4", "--raw", "/absent.json"), "/absent.json"),
    (("--lengths", "4", "--closed-book", __file__), "verdict"),
    (("--lengths", "3", "--keep-distractors"), "--keep-distractors"),
    (("--lengths", "4", "--keep-distractors", "--published-layout"), "--published-layout"),
    (("--lengths", "4", "--published-questions", "/x"), "--questions"),
]


@pytest.mark.parametrize(("flags", "reason"), WRONG)
def test_wrong_use_is_one_line_and_leaves_nothing(raw, tmp_path, capsys, flags, reason):
    assert write(raw, tmp_path / "out", *flags) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and errors[0].startswith("error: ") and reason in errors[0]
    assert not list((tmp_path / "out").glob("eval*"))


@pytest.mark.parametrize("content", ["", "[{", json.dumps([raw_row(1)] * 2)])
def test_damaged_raw_files_are_one_line(tmp_path, capsys, content):
    (tmp_path / "raw.json").write_text(content)
    assert write(tmp_path / "raw.json", tmp_path / "out", "--lengths", "4") == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


# --- what is there ---------------------------------------------------------------------------------------------------
def test_what_is_there_is_verified_and_kept(raw, tmp_path, capsys):
    output = tmp_path / "out"
    assert write(raw, output, "--lengths", "4") == 0
    before = (output / "eval_4.json").stat().st_mtime_ns
    assert write(raw, output, "--lengths", "4 8") == 0
    assert capsys.readouterr().out.splitlines()[1] == f"{output / 'eval_4.json'}: there"
    assert (output / "eval_4.json").stat().st_mtime_ns == before and len(entries(output, 8)) == 12


def damage(output):
    path = output / "eval_4.json"
    path.write_bytes(path.read_bytes().replace(b"Who", b"How"))


def age(output):
    """As written before HotpotQA's text lost the blank before closing quotes."""
    path = output / "manifest.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 1'))


REFUSED = [
    (age, (), "format"),
    (None, ("--keep-distractors",), "layout"),
    (damage, (), "SHA-256"),
    (None, ("--seed", "7"), "seed"),
    (lambda output: (output / "manifest.json").unlink(), (), "from where"),
    (lambda output: (output / "manifest.json").write_text("{"), (), "manifest.json"),
]


@pytest.mark.parametrize(("change", "flags", "reason"), REFUSED)
def test_other_files_are_never_overwritten(raw, tmp_path, capsys, change, flags, reason):
    output = tmp_path / "out"
    assert write(raw, output, "--lengths", "4") == 0
    if change:
        change(output)
    before = files(output)
    assert write(raw, output, "--lengths", "4 8", *flags) == 1
    assert reason in capsys.readouterr().err and files(output) == before


def test_one_run_at_a_time(raw, tmp_path, capsys):
    with eval_files.locked_manifest(tmp_path / "out"):
        assert write(raw, tmp_path / "out", "--lengths", "4") == 1
    assert "another run is writing there" in capsys.readouterr().err


# --- interruptions ---------------------------------------------------------------------------------------------------
def start(raw, output):
    command = [sys.executable, "-m", "mem_agent.data.eval_files", "--raw", str(raw), "--output", str(output),
               "--lengths", "4 119", "--questions", "1900", "--processes", "2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)


def big_raw(path):
    """Answers that stand nowhere, and enough questions for a run of seconds."""
    rows = [raw_row(number % 30) | {"_id": f"id{number}", "answer": "yes"} for number in range(2000)]
    path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_whole_files_and_is_continued(tmp_path, number):
    raw, output = big_raw(tmp_path / "raw.json"), tmp_path / "out"
    child = start(raw, output)
    while child.poll() is None and not any(draft.stat().st_size for draft in output.glob(".eval_119.json.*.tmp")):
        time.sleep(0.005)
    os.killpg(child.pid, number) if number == signal.SIGINT else child.send_signal(number)
    errors = child.communicate()[1]
    if number != signal.SIGKILL:
        assert (child.returncode, errors) == (130, "interrupted; the same command continues with what is missing\n")
        assert sorted(files(output)) == [".manifest.lock", "eval_4.json", "manifest.json"]
    assert not (output / "eval_119.json").exists() and len(entries(output, 4)) == 1900
    continued = start(raw, output)
    assert continued.communicate()[0].splitlines()[0] == f"{output / 'eval_4.json'}: there"
    assert continued.returncode == 0 and len(entries(output, 119)) == 1900
    assert sorted(files(output)) == [".manifest.lock", "eval_119.json", "eval_4.json", "manifest.json"]


# --- real data -------------------------------------------------------------------------------------------------------
def test_real_hotpotqa(tmp_path):
    if not HOTPOTQA_FILE.exists():
        pytest.skip(f"no {HOTPOTQA_FILE.name} beside the repository")
    assert write(HOTPOTQA_FILE, tmp_path, "--lengths", "50 100 200 400", "--questions", "60") == 0
    rows = {row["question"]: row for row in json.loads(HOTPOTQA_FILE.read_text())}
    contexts = [row["context"] for row in rows.values()]
    joined = {f"{title}\n{''.join(text)}" for each in contexts for title, text in zip(*each.values(), strict=True)}
    places = []
    for length in (50, 100, 200, 400):
        for entry in entries(tmp_path, length):
            row, texts = rows[entry["input"]], documents_of(entry)
            titles = [text.split("\n")[0] for text in texts]
            assert joined.issuperset(texts)
            assert entry["answers"] == [row["answer"]] and len(set(texts)) == length
            assert entry["supporting"] == list(dict.fromkeys(row["supporting_facts"]["title"]))
            places += [titles.index(title) / length for title in entry["supporting"]]
    assert 0.45 < sum(places) / len(places) < 0.55
