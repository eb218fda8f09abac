"""Published evaluation files: what numbers of documents mean, and whose questions they are."""

import json

import pytest

from mem_agent.data import synthesize
from mem_agent.data.eval_files import published_ids
from mem_agent.data.rows import DataError
from mem_agent.evaluation.questions import data_hash, load_questions
from mem_agent.evaluation.results import EvalError
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


def write(root, *changes, name="eval_12800.json"):
    entry = {"context": [3, 1], "input": "Where?", "answers": ["Rome"], "num_docs": 2, "index": 1}
    (root / name).write_text(json.dumps([entry | change for change in changes]))
    return root / name


def test_numbers_count_the_sorted_paragraphs_of_the_raw_file_which_is_part_of_the_data(root):
    """Sorted by characters: Ann (once, of both rows), Rome, Zoë, Été."""
    write(root, {}, {"context": [2, 0], "input": "Who?", "index": 0})
    assert [each.context for each in load_questions(root, "12800")] == [
        'Document 1:\nÉté\n\n\nDocument 2:\nRome\n"Rome!" is.',
        "Document 1:\nZoë\nZoë is.\n\nDocument 2:\nAnn\nAnn is. She was."]
    before = data_hash(root, "12800")
    (root / RAW).write_text(json.dumps(ROWS[::-1]))
    assert data_hash(root, "12800") != before
    (root / RAW).unlink()
    with pytest.raises(EvalError, match=RAW):
        list(load_questions(root, "12800"))


def test_published_questions_are_rows_of_the_raw_file_in_the_files_order(root, tmp_path):
    published = write(root, {"context": "text"}, {"context": "text", "input": "Who?", "index": 0}, name="eval_50.json")
    assert published_ids(published, root / RAW) == ("b", "a")
    with pytest.raises(DataError, match=r"eval_50\.json: row 1: .*`index`"):
        published_ids(write(root, {"index": 0}, name="eval_50.json"), root / RAW)
    one = put(root / "dev.jsonl", {"context": "text", "extra_info": {"index": 1, "question": "Where?"}})
    flags = ["--raw", str(root / RAW), "--output", str(tmp_path / "out"), "--lengths", "2"]
    assert synthesize.main([*flags, "--published-questions", str(one)]) == 0
    (made,) = json.loads((tmp_path / "out" / "eval_2.json").read_text())
    assert (made["input"], made["id"], made["answers"]) == ("Where?", "b", ["Rome"])
