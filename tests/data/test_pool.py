"""Raw files of four data sets: one row, one question; many files, one pool."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.pool import CorpusError, load_corpora
from mem_agent.data.raw_rows import Paragraph, RawQuestion, Skip, read_row
from mem_agent.data.row_schemas import BadRow

HOTPOTQA = {
    "_id": "5a",
    "question": "Who?",
    "answer": "Ann",
    "supporting_facts": [["Ann", 0], ["Ann", 1]],
    "context": [["Ann", ["Ann is.", " She was."]], ["Bob", ["Bob is."]]],
}
COLUMNS = {
    "supporting_facts": {"title": ["Ann", "Ann"], "sent_id": [0, 1]},
    "context": {"title": ["Ann", "Bob"], "sentences": [["Ann is.", " She was."], ["Bob is."]]},
}
MUSIQUE = {
    "id": "2hop__1",
    "question": "Who?",
    "answer": "Ann",
    "answer_aliases": ["Ann Lee", "Ann"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Ann", "paragraph_text": "Ann is. She was.", "is_supporting": True},
        {"idx": 1, "title": "Bob", "paragraph_text": "Bob is.", "is_supporting": False},
    ],
}
SQUAD = {
    "id": "56",
    "title": "Ann",
    "context": "Ann is. She was.",
    "question": "Who?",
    "answers": {"text": ["Ann", "Ann Lee", "Ann"], "answer_start": [0, 0, 0]},
}
PARAGRAPHS = (Paragraph("Ann", "Ann is. She was.", True), Paragraph("Bob", "Bob is.", False))


def qa(number, impossible=False):
    answers = [] if impossible else [{"text": f"answer {number}", "answer_start": 0}]
    return {"id": f"q{number}", "question": f"Who {number}?", "answers": answers, "is_impossible": impossible}


def squad_file(path, indent=None):
    paragraphs = [{"context": f"Text {n}.", "qas": [qa(n), qa(n + 10, impossible=True)]} for n in range(3)]
    articles = [{"title": "One", "paragraphs": paragraphs[:2]}, {"title": "Two", "paragraphs": paragraphs[2:]}]
    path.write_text(json.dumps({"version": "v2.0", "data": articles}, indent=indent))
    return path


def put(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- rows ------------------------------------------------------------------------------------------------------------
SHAPES = [
    HOTPOTQA,
    HOTPOTQA | COLUMNS,
    HOTPOTQA | {name: json.dumps(HOTPOTQA[name]) for name in COLUMNS},
    HOTPOTQA | {"context": [["Ann", ["Ann is.", "She was."]], ["Bob", ["Bob is.", ""]]]},
    HOTPOTQA | {"context": [*HOTPOTQA["context"], ["Empty", []], ["Blank", [" "]]]},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_hotpotqa_and_2wiki_shapes_are_one_question(shape):
    assert read_row(shape) == RawQuestion("5a", "Who?", ("Ann",), PARAGRAPHS, ("Ann",))


def test_without_marks_every_paragraph_is_gold():
    question = read_row({k: v for k, v in HOTPOTQA.items() if k != "supporting_facts"})
    assert question.supporting == () and all(paragraph.gold for paragraph in question.paragraphs)


def test_musique_row_has_all_aliases():
    assert read_row(MUSIQUE) == RawQuestion("2hop__1", "Who?", ("Ann", "Ann Lee"), PARAGRAPHS, ("Ann",))


def test_squad_row():
    expected = RawQuestion("56", "Who?", ("Ann", "Ann Lee"), PARAGRAPHS[:1], ("Ann",), article="Ann")
    assert read_row(SQUAD) == expected


def test_a_row_without_id_is_known_by_its_question():
    named = read_row({k: v for k, v in HOTPOTQA.items() if k != "_id"})
    other = read_row(HOTPOTQA | {"_id": None, "question": "Who, then?"})
    assert len(named.id) == 16 and named.id != other.id


SKIPPED = [
    (HOTPOTQA | {"supporting_facts": [["Carl", 0]]}, Skip.GOLD_ABSENT),
    (HOTPOTQA | {"context": [["Ann", [""]], ["Bob", ["Bob is."]]]}, Skip.GOLD_ABSENT),
    (MUSIQUE | {"answerable": False}, Skip.IMPOSSIBLE),
    (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][1:]}, Skip.GOLD_ABSENT),
    (SQUAD | {"answers": {"text": [], "answer_start": []}}, Skip.IMPOSSIBLE),
    (SQUAD | {"is_impossible": True}, Skip.IMPOSSIBLE),
]


@pytest.mark.parametrize(("row", "reason"), SKIPPED)
def test_sound_rows_of_no_use(row, reason):
    assert read_row(row) is reason


BROKEN = [
    ({"text": "a"}, "fits no known data set"),
    (HOTPOTQA | {"answer": None}, "answer is missing; use a split that has answers"),
    (HOTPOTQA | {"answer": ""}, "answer is missing; use a split that has answers"),
    (HOTPOTQA | {"question": " "}, "question is blank"),
    (HOTPOTQA | {"context": [["Ann"]]}, "context is neither pairs nor title and sentences"),
    (HOTPOTQA | {"context": [["Ann", "Ann is."]]}, "not a title with a list of sentences"),
    (HOTPOTQA | {"context": []}, "no paragraph has any text"),
    (HOTPOTQA | {"context": "[["}, "context is text, and not JSON"),
    (HOTPOTQA | {"question": "\ud800"}, "half a Unicode character"),
    (MUSIQUE | {"paragraphs": [1]}, "paragraphs is no list of objects"),
    (MUSIQUE | {"answer": None}, "answer is missing"),
    (SQUAD | {"answers": {}}, "answer is missing"),
]


@pytest.mark.parametrize(("row", "reason"), BROKEN)
def test_broken_rows_say_why(row, reason):
    with pytest.raises(BadRow, match=reason):
        read_row(row)


# --- files -----------------------------------------------------------------------------------------------------------
def test_shared_paragraphs_are_one_document(tmp_path):
    other = HOTPOTQA | {"_id": "5b", "supporting_facts": [["Bob", 0]],
                        "context": [["Bob", ["Bob is."]], ["Carl", ["Carl is."]]]}
    corpora = load_corpora([put(tmp_path / "a.jsonl", HOTPOTQA), put(tmp_path / "b.json", other)])
    texts = [corpora.pool.texts[number] for number in range(len(corpora.pool))]
    assert texts == ["Ann\nAnn is. She was.", "Bob\nBob is.", "Carl\nCarl is."]
    assert [(q.gold, q.own) for q in corpora.questions] == [((0,), (1,)), ((1,), (2,))]


@pytest.mark.parametrize("indent", [None, 1])
def test_original_squad_files(tmp_path, indent):
    corpora = load_corpora([squad_file(tmp_path / "train-v2.0.json", indent)])
    assert [q.id for q in corpora.questions] == ["q0", "q1", "q2"]
    assert [(q.gold, q.own) for q in corpora.questions] == [((0,), (1,)), ((1,), (0,)), ((2,), ())]
    assert corpora.skipped == {Skip.IMPOSSIBLE: 3}


def test_parquet_and_list_files(tmp_path):
    pq.write_table(pa.Table.from_pylist([HOTPOTQA | COLUMNS]), tmp_path / "a.parquet")
    (tmp_path / "b.json").write_text(json.dumps([HOTPOTQA | {"_id": "5b"}]))
    corpora = load_corpora([tmp_path / "a.parquet", tmp_path / "b.json"])
    assert len(corpora.pool) == 2 and [q.id for q in corpora.questions] == ["5a", "5b"]


def test_other_scripts_and_articles_survive_the_buffer(tmp_path):
    row = HOTPOTQA | {"context": [["Ann", ["Ünïcode 東京 🙂"]], ["Bob", ["The end."]]]}
    pool = load_corpora([put(tmp_path / "a.jsonl", row)]).pool
    assert pool.texts[0] == "Ann\nÜnïcode 東京 🙂" and pool.words[1] == " bob end "
    assert pool.words.holds(0, " 東京 ".encode()) and not pool.words.holds(1, b" ann ")


UNREADABLE = {
    "cut.json": (json.dumps([HOTPOTQA])[:-20], "cannot be read"),
    "cut.jsonl": (json.dumps(HOTPOTQA)[:-5], "line 1: not valid JSON"),
    "squad.json": ('{"data": [{"title": "a", "par', "not valid JSON"),
    "articles.json": ('{"data": [{"title": "a"}]}', "article 1 is not as in SQuAD files"),
    "gold.jsonl": (json.dumps(HOTPOTQA | {"answer": None}), "line 1: answer is missing; use a split"),
    "twice.jsonl": ("\n".join([json.dumps(HOTPOTQA)] * 2), "line 2: id 5a is at twice.jsonl line 1 already"),
    "empty.jsonl": ("", "no question that can be used among 0 rows"),
    "impossible.jsonl": (json.dumps(MUSIQUE | {"answerable": False}), "no question that can be used among 1 rows"),
    "table.csv": ("a,b", "unknown kind of file"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files_are_one_line(tmp_path, name):
    content, reason = UNREADABLE[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=reason) as caught:
        load_corpora([tmp_path / name])
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_an_absent_file_is_one_line(tmp_path):
    with pytest.raises(CorpusError, match="no such file"):
        load_corpora([tmp_path / "absent.json"])
