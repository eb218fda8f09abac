"""SQuAD and HotpotQA files become one pool of documents and questions that name what they need."""

import json

import pytest

from mem_agent.data.rows import DataError
from mem_agent.data.ruler_corpus import Corpus, read_hotpotqa, read_squad
from mem_agent.tests.helpers.question_rows import HOTPOTQA, HOTPOTQA_FILE, SQUAD_FILE, without

# Another order, and a supporting document that is not there: RULER does without, synthesis leaves the question out.
ORIGINAL = HOTPOTQA | {"supporting_facts": [["Ann", 0], ["Absent", 0]], "context": HOTPOTQA["context"][::-1]}
HUGGING_FACE = ORIGINAL | {"context": {"title": ["Bob", "Ann"], "sentences": [["Bob is."], ["Ann is.", " She was."]]}}


def put(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def asked(corpus: Corpus):
    return [(q.question, q.answers, q.gold, q.own) for q in corpus.questions]


def test_squad(tmp_path):
    # Sorted: "It is cold.", "The Po is long."; a question without answers brings no documents either.
    corpus = read_squad(put(tmp_path / "squad.json", SQUAD_FILE))
    assert corpus.name == "squad.json" and corpus.documents == ("It is cold.", "The Po is long.")
    assert asked(corpus) == [("Which?", ("Po", "The Po"), (1,), (0,))]


@pytest.mark.parametrize("row", [ORIGINAL, HUGGING_FACE])
def test_hotpotqa_in_both_layouts(tmp_path, row):
    corpus = read_hotpotqa(put(tmp_path / "hotpotqa.json", [row]))
    assert corpus.documents == ("Ann\nAnn is. She was.", "Bob\nBob is.")
    assert asked(corpus) == [("Who?", ("Ann",), (0,), (1,))]


def test_a_row_without_supporting_facts_needs_all_its_documents(tmp_path):
    row = without(ORIGINAL, "supporting_facts")
    assert read_hotpotqa(put(tmp_path / "f.json", [row])).questions[0].gold == (1, 0)


def test_real_hotpotqa_rows():
    if not HOTPOTQA_FILE.exists():
        pytest.skip(f"no {HOTPOTQA_FILE.name} beside the repository")
    corpus = read_hotpotqa(HOTPOTQA_FILE)
    assert len(corpus.questions) == 60 and len(corpus.documents) > 500
    assert {len(question.gold) for question in corpus.questions} == {2}
    assert all(len(question.gold + question.own) <= 10 for question in corpus.questions)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_squad, [1], "SQuAD"),
        (read_squad, {"data": []}, "no question"),
        (read_squad, "{", "SQuAD"),
        (read_squad, {"data": [{"title": "a"}]}, "article 1"),
        (read_hotpotqa, [ORIGINAL, ORIGINAL | {"context": "Ann is."}], "row 2"),
        (read_hotpotqa, [{"question": "?", "answer": "a"}], "row 1"),
        (read_hotpotqa, [], "no question"),
    ],
)
def test_a_bad_file_is_named(tmp_path, read, content, message):
    path = put(tmp_path / "raw.json", content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
