"""Documents of a question; evaluation files: same questions, same bytes, nothing half-written; curricula."""

import json

import pytest

from mem_agent.data import eval_files, synthesize
from mem_agent.data.eval_files import Corpus, locked_manifest, sha256_of
from mem_agent.data.questions import PoolQuestion
from mem_agent.data.rows import DataError
from mem_agent.data.synthesize import haystack, lengths_of, main, parse_curriculum
from mem_agent.evaluation.questions import load_questions
from mem_agent.tests.helpers.raw_hotpotqa import raw_rows, split_documents


@pytest.mark.parametrize(("answer", "text", "holds"), [
    ("Ann Lee", "She was ANN LEE.", True), ("Ann Lee", "Joann Leeds was there.", False), ("1,984", "in 1984", True),
    ("the Rock", "They call him Rock, always.", True), ("no", "There was no way to know.", False),
])
def test_distractors_never_hold_an_answer(answer, text, holds):
    documents = ["Gold\nIt is.", *(f"T{n}\n{text} {n}" for n in range(20)), *(f"U{n}\nClean {n}" for n in range(20))]
    chosen = haystack(documents, PoolQuestion("q", "Who?", ("something else", answer), (0,), (0, 1, 2)), 21, seed=1)
    assert any("T" == documents[n][0] for n in chosen) is not holds and len(set(chosen)) == 21


def test_the_published_layout_is_one_shuffle_for_all_questions():
    """``random.Random(4)`` puts the 10 paragraphs of any question at these places of 200 documents."""
    documents = [f"Title {n}\nAnn Lee" for n in range(400)]  # strangers may hold the answer
    for first in (0, 90):
        own = range(first, first + 10)
        asked = PoolQuestion(f"q{first}", "Who?", ("Ann Lee",), (own[3],), tuple(own))
        places = [haystack(documents, asked, 200, 1, published=True).index(n) for n in own]
        assert places == [6, 153, 87, 95, 9, 190, 176, 108, 16, 80]


def test_a_curriculum_of_lengths():
    assert lengths_of(parse_curriculum("4 6"), 10) == [4] * 5 + [6] * 5
    assert lengths_of(parse_curriculum("8:0.34 4:0.33 6:0.33"), 10) == [8] * 4 + [4] * 3 + [6] * 3
    for wrong in ("4 4", "4:0.5 6:0.6", "4 x"):
        with pytest.raises(DataError, match=wrong):
            parse_curriculum(wrong)


# --- evaluation files ------------------------------------------------------------------------------------------------
@pytest.fixture
def raw(tmp_path):
    """Of 60 questions of ten paragraphs."""
    (tmp_path / "raw.json").write_text(json.dumps(raw_rows(60)))
    return tmp_path / "raw.json"


def write(output, *flags):
    return main(["--raw", str(output.parent / "raw.json"), "--output", str(output), "--questions", "12", *flags])


def entries(output, name):
    return json.loads((output / f"eval_{name}.json").read_text())


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def titles_of(entry):
    return [text.split("\n")[0] for text in split_documents(entry["context"])]


def test_equal_options_give_the_same_questions_in_equal_bytes_and_the_manifest_says_of_what(raw, tmp_path):
    for name, more in (("a", ()), ("b", ()), ("c", ("--seed", "7"))):
        assert write(tmp_path / name, "--lengths", "4 100", *more) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert entries(tmp_path / "c", 4) != entries(tmp_path / "a", 4)
    short, long = (entries(tmp_path / "a", length) for length in (4, 100))
    assert [(e["index"], e["id"], e["answers"]) for e in short] == [(e["index"], e["id"], e["answers"]) for e in long]
    for entry in long:
        assert len({*titles_of(entry)}) == entry["num_docs"] == 100 and {*entry["supporting"]} < {*titles_of(entry)}
    assert list(long[0]) == ["index", "id", "input", "answers", "num_docs", "supporting", "context"]
    path = tmp_path / "a" / "eval_4.json"
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["files"]["eval_4.json"] == {
        "sha256": sha256_of(path), "bytes": path.stat().st_size,
        "source": {"kind": "synthesis", "format": 2, "raw": [{"file": "raw.json", "sha256": sha256_of(raw)}],
                   "questions": 12, "seed": 42, "documents": 4, "index_only": False},
    }


def test_index_only_entries_give_the_same_documents(raw, tmp_path, monkeypatch):
    assert write(tmp_path / "full", "--lengths", "50") == 0
    monkeypatch.setattr(eval_files, "INDEX_ONLY_ABOVE", 49)
    assert write(tmp_path / "index", "--lengths", "50") == 0
    assert all("context" not in one and len(one["documents"]) == 50 for one in entries(tmp_path / "index", 50))
    full, index = ([one.context for one in load_questions(tmp_path / name, "50")] for name in ("full", "index"))
    assert full == index
    corpus = Corpus(tmp_path / "index", "eval_50.json")
    corpus.path.write_bytes(corpus.path.read_bytes().replace(b"Title 1\\", b"Title 9\\"))
    with pytest.raises(DataError, match="corpus"):
        Corpus(tmp_path / "index", "eval_50.json")


def test_questions_that_need_no_document_stay_out(raw, tmp_path):
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"dropped": [f"{n:024x}" for n in range(48)]}))
    assert write(tmp_path / "out", "--lengths", "4", "--closed-book", str(verdict)) == 0
    assert {entry["id"] for entry in entries(tmp_path / "out", 4)} == {f"{n:024x}" for n in range(48, 60)}


def test_subsets_hold_questions_whose_evidence_is_far_apart_last_fact_first(raw, tmp_path):
    out, rows = tmp_path / "out", {row["_id"]: row for row in raw_rows(60)}
    assert write(out, "--lengths", "300", "--distant-evidence") == 0 == write(tmp_path / "plain", "--lengths", "300")
    assert files(tmp_path / "plain")["eval_300.json"] == files(out)["eval_300.json"]
    found = entries(out, "300_min_distance_100")
    assert 0 < len(found) <= 12  # of 60; of 12 about a third would do
    for entry in found:
        facts = [title for title, _ in rows[entry["id"]]["supporting_facts"]]
        assert entry["evidence"] == [titles_of(entry).index(title) for title in facts]
        assert entry["evidence"][0] - entry["evidence"][1] == entry["min_distance"] >= 100


# --- what goes wrong -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("flags", "named"), [
    (("--lengths", "50 x"), "50 x"), (("--lengths", "1"), "1 asked for"), (("--lengths", "1000"), "in the pool"),
    (("--lengths", "4", "--questions", "61"), "61 questions"), (("--lengths", "9", "--published-layout"), "has 10"),
])
def test_wrong_use_is_one_line_and_leaves_nothing(raw, tmp_path, capsys, flags, named):
    assert write(tmp_path / "out", *flags) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and errors[0].startswith("error: ") and named in errors[0]
    assert not list((tmp_path / "out").glob("eval*"))


@pytest.mark.parametrize(("name", "old", "new", "flags", "named"), [
    ("manifest.json", '"format": 2', '"format": 1', (), "format"), ("eval_4.json", "Who", "How", (), "eval_4.json"),
    ("manifest.json", "", "", ("--seed", "7"), "seed"),
])
def test_other_files_are_never_overwritten(raw, tmp_path, capsys, name, old, new, flags, named):
    out = tmp_path / "out"
    assert write(out, "--lengths", "4") == 0
    (out / name).write_text((out / name).read_text().replace(old, new))
    before = files(out)
    assert write(out, "--lengths", "4 8", *flags) == 1 and named in capsys.readouterr().err and files(out) == before


def test_an_interrupted_run_leaves_whole_files_and_is_continued_by_one_at_a_time(raw, tmp_path, monkeypatch, capsys):
    output, steps = tmp_path / "out", iter(range(17))

    def interrupted():
        if next(steps, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(synthesize, "stop_if_asked", interrupted)
        assert write(output, "--lengths", "4 100") == 130
    assert (output / "eval_4.json").exists() and not list(output.glob("*eval_100*"))
    with locked_manifest(output):
        assert write(output, "--lengths", "4 100") == 1 and str(output) in capsys.readouterr().err
    assert write(output, "--lengths", "4 100") == 0 and len(entries(output, 100)) == 12
    assert capsys.readouterr().out.splitlines()[0] == f"{output / 'eval_4.json'}: there"
