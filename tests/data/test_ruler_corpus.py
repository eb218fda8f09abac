"""SQuAD and HotpotQA files become one pool of documents and questions that name what they need; wording files."""

import json
from pathlib import Path

import pytest

from mem_agent.data.ruler_corpus import Corpus, CorpusError, Question, read_hotpotqa, read_squad
from mem_agent.ruler.wording import Wording, WordingError, load_wording

HOTPOTQA = Path(__file__).resolve().parents[3] / "shared" / "data" / "hotpotqa_distractor_60.json"
SQUAD_ROWS = {
    "data": [
        {
            "title": "Rivers",
            "paragraphs": [
                {
                    "context": "The Po is long.",
                    "qas": [
                        {"question": "Which?", "answers": [{"text": "Po"}, {"text": "The Po"}, {"text": "Po"}]},
                        {"question": "None?", "answers": [], "is_impossible": True},
                    ],
                },
                {"context": "It is cold.", "qas": []},
            ],
        },
        {"title": "Seas", "paragraphs": [{"context": "Salt.", "qas": [{"question": "Q", "answers": []}]}]},
    ]
}
ORIGINAL = {
    "question": "Who?",
    "answer": "Ann",
    "supporting_facts": [["Ann", 0], ["Ann", 1], ["Absent", 0]],
    "context": [["Bob", ["Bob is."]], ["Ann", ["Ann is.", " She was."]]],
}
HUGGING_FACE = ORIGINAL | {
    "supporting_facts": {"title": ["Ann"], "sent_id": [0]},
    "context": {"title": ["Bob", "Ann"], "sentences": [["Bob is."], ["Ann is.", " She was."]]},
}


def put(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_squad(tmp_path):
    # Sorted: "It is cold.", "The Po is long."; a question without answers brings no documents either.
    corpus = read_squad(put(tmp_path / "squad.json", SQUAD_ROWS))
    question = Question("Which?", ("Po", "The Po"), needed=(1,), near=(0,))
    assert corpus == Corpus("squad.json", ("It is cold.", "The Po is long."), (question,))


@pytest.mark.parametrize("row", [ORIGINAL, HUGGING_FACE])
def test_hotpotqa_in_both_layouts(tmp_path, row):
    corpus = read_hotpotqa(put(tmp_path / "hotpotqa.json", [row]))
    assert corpus.documents == ("Ann\nAnn is. She was.", "Bob\nBob is.")
    assert corpus.questions == (Question("Who?", ("Ann",), needed=(0,), near=(1,)),)


def test_a_row_without_supporting_facts_needs_all_its_documents(tmp_path):
    row = {name: value for name, value in ORIGINAL.items() if name != "supporting_facts"}
    assert read_hotpotqa(put(tmp_path / "f.json", [row])).questions[0].needed == (1, 0)


def test_real_hotpotqa_rows():
    if not HOTPOTQA.exists():
        pytest.skip(f"no {HOTPOTQA.name} beside the repository")
    corpus = read_hotpotqa(HOTPOTQA)
    assert len(corpus.questions) == 60 and len(corpus.documents) > 500
    assert {len(question.needed) for question in corpus.questions} == {2}
    assert all(len(question.needed + question.near) <= 10 for question in corpus.questions)


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_squad, [1], "not a SQuAD file"),
        (read_squad, {"data": []}, "no question with an answer"),
        (read_squad, "{", "not JSON"),
        (read_squad, None, "cannot be read"),
        (read_hotpotqa, {"data": 1}, "not a HotpotQA file"),
        (read_hotpotqa, [{"question": "?", "answer": "a"}], "not a HotpotQA file"),
        (read_hotpotqa, [ORIGINAL | {"answer": " "}], "no question with an answer"),
    ],
)
def test_a_bad_file_is_named(tmp_path, read, content, message):
    path = tmp_path / "raw.json"
    if content is not None:
        put(path, content)
    with pytest.raises(CorpusError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_wording_file_replaces_some_texts(tmp_path):
    wording = load_wording(put(tmp_path / "own.yaml", 'needle: "{key}: {value}"\nqa_prefix: ""\n'))
    assert wording.needle.format(kind="number", kinds="numbers", key="a", value="1") == "a: 1"
    assert wording.niah_one == Wording().niah_one and wording.qa_prefix == ""
    assert wording.name.startswith("own.yaml sha256:")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("needles: a", "allowed: a mapping of noise, needle"),
        ("- a", "allowed: a mapping"),
        ("", "allowed: a mapping"),
        ("needle: '{key}'", "needle must hold"),
        ("vt: '{value} {what}'", "vt must hold"),
        ("noise: ' '", "noise must hold"),
        ("cwe: 3", "not a text"),
        ("qa: '{question'", "not a text"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_bad_wording_is_named(tmp_path, content, message):
    with pytest.raises(WordingError, match=message):
        load_wording(put(tmp_path / "own.yaml", content))
