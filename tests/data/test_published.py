"""MemAgent's published files: what numbers of documents mean, and whose questions they are."""

import json

import pytest

from mem_agent.data.eval_files import main
from mem_agent.data.published import PublishedError, RawFile, find_raw, published_ids
from mem_agent.evaluation.questions import EvalError, data_hash, load_questions
from mem_agent.tests.helpers.question_rows import put

ROWS = [
    {"_id": "a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0]],
     "context": [["Zoë", ["Zoë is."]], ["Ann", ["Ann is.", " She was."]]]},
    {"_id": "b", "question": "Where?", "answer": "Rome", "supporting_facts": [["Rome", 0]],
     "context": [["Rome", ['"Rome!', '" is.']], ["Ann", ["Ann is.", " She was."]], ["Été", []]]},
]
NUMBERED = ["Ann\nAnn is. She was.", 'Rome\n"Rome!" is.', "Zoë\nZoë is.", "Été\n"]
"""Sorted by characters; the paragraph of both rows is there once."""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(json.dumps(ROWS))
    return tmp_path


def entry(**changes):
    return {"context": [3, 1], "input": "Where?", "answers": ["Rome"], "num_docs": 2, "index": 1} | changes


def write(root, *entries, name="eval_12800.json"):
    (root / name).write_text(json.dumps(entries))
    return root / name


def test_numbers_count_the_sorted_paragraphs_of_the_raw_file(root):
    raw = RawFile(find_raw(root))
    assert [raw[number] for number in range(len(raw))] == NUMBERED


def test_an_index_only_file_is_read_with_the_raw_file_beside_it(root):
    write(root, entry(), entry(context=[2, 0], input="Who?", index=0))
    contexts = [each.context for each in load_questions(root, "12800")]
    assert contexts[0] == 'Document 1:\nÉté\n\n\nDocument 2:\nRome\n"Rome!" is.'
    assert contexts[1] == "Document 1:\nZoë\nZoë is.\n\nDocument 2:\nAnn\nAnn is. She was."


def test_the_raw_file_is_part_of_the_data(root):
    write(root, entry())
    before = data_hash(root, "12800")
    (root / "hotpot_dev_distractor_v1.json").write_text(json.dumps(ROWS[::-1]))
    assert data_hash(root, "12800") != before
    with pytest.raises(EvalError, match="entry 0: "):
        list(load_questions(root, "12800"))


WRONG = [
    (entry(context=[4]), "`context`"),
    (entry(context=["x"]), "`context`"),
    (entry(index=2), "`index`"),
    (entry(index=0), "row 1"),
]


@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_numbers_that_fit_no_document_are_one_line(root, wrong, reason):
    write(root, wrong)
    with pytest.raises(EvalError, match=r"eval_12800\.json: entry 0: ") as error:
        list(load_questions(root, "12800"))
    assert reason in str(error.value)


def test_without_the_raw_file_the_remedy_is_said(root):
    write(root, entry())
    (root / "hotpot_dev_distractor_v1.json").rename(root / "hotpotqa_dev.json")  # as MemAgent's scripts call it
    assert list(load_questions(root, "12800"))
    (root / "hotpotqa_dev.json").unlink()
    with pytest.raises(EvalError, match="put that file into"):
        list(load_questions(root, "12800"))


# --- the questions of a published file -------------------------------------------------------------------------------
def test_published_questions_are_rows_of_the_raw_file_in_the_files_order(root):
    inline = [entry(context="text"), entry(context="text", input="Who?", index=0)]
    raw = root / "hotpot_dev_distractor_v1.json"
    assert published_ids(write(root, *inline, name="eval_50.json"), raw) == ("b", "a")
    training = {"prompt": [], "context": "text", "extra_info": {"index": 1, "question": "Where?", "num_docs": 200}}
    assert published_ids(put(root / "dev.jsonl", training), raw) == ("b",)


WRONG_FILES = [
    ([entry(index=0)], "row 1"),
    ([entry(index=7)], "row 8"),
    ([entry(), entry()], "twice"),
    ([], "no questions"),
    ([{"id": "x", "input": "Where?"}], "`index`"),
]


@pytest.mark.parametrize(("entries", "reason"), WRONG_FILES)
def test_files_that_name_other_questions_are_one_line(root, entries, reason):
    with pytest.raises(PublishedError) as error:
        published_ids(write(root, *entries), root / "hotpot_dev_distractor_v1.json")
    assert reason in str(error.value)


def test_synthesis_asks_the_published_questions(root, tmp_path):
    raw, published = root / "hotpot_dev_distractor_v1.json", write(root, entry(), name="eval_9.json")
    flags = ["--raw", str(raw), "--output", str(tmp_path / "out"), "--lengths", "2", "--processes", "1"]
    assert main([*flags, "--published-questions", str(published)]) == 0
    (made,) = json.loads((tmp_path / "out" / "eval_2.json").read_text())
    assert (made["input"], made["id"], made["answers"]) == ("Where?", "b", ["Rome"])
    source = json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]["eval_2.json"]["source"]
    assert "questions" not in source and len(source["published"]) == 64
