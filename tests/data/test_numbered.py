"""MemAgent's published files: what numbers of documents mean, and whose questions they are."""

import json

import pytest

from mem_agent.data.eval_files import published_ids
from mem_agent.data.rows import DataError
from mem_agent.data.synthesize import main
from mem_agent.evaluation.questions import EvalError, data_hash, load_questions
from mem_agent.tests.helpers.question_rows import put

ROWS = [
    {"_id": "a", "question": "Who?", "answer": "Ann", "supporting_facts": [["Ann", 0]],
     "context": [["Zoë", ["Zoë is."]], ["Ann", ["Ann is.", " She was."]]]},
    {"_id": "b", "question": "Where?", "answer": "Rome", "supporting_facts": [["Rome", 0]],
     "context": [["Rome", ['"Rome!', '" is.']], ["Ann", ["Ann is.", " She was."]], ["Été", []]]},
]
RAW = "hotpot_dev_distractor_v1.json"


@pytest.fixture
def root(tmp_path):
    (tmp_path / RAW).write_text(json.dumps(ROWS))
    return tmp_path


def entry(**changes):
    return {"context": [3, 1], "input": "Where?", "answers": ["Rome"], "num_docs": 2, "index": 1} | changes


def write(root, *entries, name="eval_12800.json"):
    (root / name).write_text(json.dumps(entries))
    return root / name


def test_numbers_count_the_sorted_paragraphs_of_the_raw_file_which_is_part_of_the_data(root):
    """Sorted by characters: Ann (once, of both rows), Rome, Zoë, Été."""
    write(root, entry(), entry(context=[2, 0], input="Who?", index=0))
    contexts = [each.context for each in load_questions(root, "12800")]
    assert contexts[0] == 'Document 1:\nÉté\n\n\nDocument 2:\nRome\n"Rome!" is.'
    assert contexts[1] == "Document 1:\nZoë\nZoë is.\n\nDocument 2:\nAnn\nAnn is. She was."
    before = data_hash(root, "12800")
    (root / RAW).write_text(json.dumps(ROWS[::-1]))
    assert data_hash(root, "12800") != before


@pytest.mark.parametrize(("wrong", "named"), [
    (entry(context=[4]), "`context`"), (entry(context=["x"]), "`context`"), (entry(index=2), "`index`"),
    (entry(index=0), "`index`"),
])
def test_numbers_that_fit_no_document_are_one_line(root, wrong, named):
    write(root, wrong)
    with pytest.raises(EvalError, match=rf"eval_12800\.json: entry 0: .*{named}"):
        list(load_questions(root, "12800"))


def test_without_the_raw_file_its_name_is_said(root):
    write(root, entry())
    (root / RAW).rename(root / "hotpotqa_dev.json")  # as MemAgent's scripts call it
    assert list(load_questions(root, "12800"))
    (root / "hotpotqa_dev.json").unlink()
    with pytest.raises(EvalError, match=RAW):
        list(load_questions(root, "12800"))


def test_published_questions_are_rows_of_the_raw_file_in_the_files_order(root):
    inline = [entry(context="text"), entry(context="text", input="Who?", index=0)]
    assert published_ids(write(root, *inline, name="eval_50.json"), root / RAW) == ("b", "a")
    training = {"prompt": [], "context": "text", "extra_info": {"index": 1, "question": "Where?", "num_docs": 200}}
    assert published_ids(put(root / "dev.jsonl", training), root / RAW) == ("b",)


@pytest.mark.parametrize("entries", [
    [entry(index=0)], [entry(index=7)], [], [{"id": "x", "input": "Where?"}],
])
def test_files_that_name_other_questions_are_one_line(root, entries):
    with pytest.raises(DataError, match=r"eval_12800\.json"):
        published_ids(write(root, *entries), root / RAW)


def test_synthesis_asks_the_published_questions(root, tmp_path):
    flags = ["--raw", str(root / RAW), "--output", str(tmp_path / "out"), "--lengths", "2"]
    assert main([*flags, "--published-questions", str(write(root, entry(), name="eval_9.json"))]) == 0
    (made,) = json.loads((tmp_path / "out" / "eval_2.json").read_text())
    assert (made["input"], made["id"], made["answers"]) == ("Where?", "b", ["Rome"])
    source = json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]["eval_2.json"]["source"]
    assert "questions" not in source and len(source["published"]) == 64
