"""Raw files of four data sets: many files, one pool."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.pool import Skip, load_corpora, read_questions
from mem_agent.data.rows import DataError, NoGoodRows
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MUSIQUE, SQUAD, put


def texts(pool):
    return [pool[number] for number in range(len(pool))]


def loaded(tmp_path, *rows):
    return load_corpora([put(tmp_path / "a.jsonl", *rows)])


# --- rows ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("row", [
    HOTPOTQA | {"context": [["Ann", ["Ann is.", "She was."]], ["Bob", ["Bob is.", ""]]]},
    HOTPOTQA | {"context": [*HOTPOTQA["context"], ["Empty", []], ["Blank", [" "]]]},
    HOTPOTQA | {"context": [["Ann", "Ann is. She was."], ["Bob", "Bob is."]]},
    MUSIQUE,
])
def test_paragraphs_with_text_are_documents_in_one_spacing(tmp_path, row):
    corpora = loaded(tmp_path, row)
    (question,) = corpora.questions
    assert texts(corpora.pool) == ["Ann\nAnn is. She was.", "Bob\nBob is."]
    assert (question.gold, question.own, question.supporting) == ((0,), (1,), ("Ann",))


@pytest.mark.parametrize(("row", "reason"), [
    (HOTPOTQA | {"supporting_facts": [["Carl", 0]]}, Skip.GOLD_ABSENT),
    (HOTPOTQA | {"context": [["Ann", [""]], ["Bob", ["Bob is."]]]}, Skip.GOLD_ABSENT),
    (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][1:]}, Skip.GOLD_ABSENT),
    (MUSIQUE | {"answerable": False}, Skip.IMPOSSIBLE), (SQUAD | {"is_impossible": True}, Skip.IMPOSSIBLE),
])
def test_sound_rows_of_no_use_are_counted(tmp_path, row, reason):
    assert loaded(tmp_path, row, HOTPOTQA | {"_id": "good"}).skipped == {reason: 1}


BAD = [
    '{"half', {"text": "a"}, HOTPOTQA | {"supporting_facts": [1]}, HOTPOTQA | {"context": [["Ann", [" "]]]},
    HOTPOTQA | {"answer": ""}, HOTPOTQA | {"context": []}, HOTPOTQA | {"context": "Ann is."},
]


def test_bad_rows_and_repeated_ids_are_named_and_counted(tmp_path, capsys):
    rows = [*BAD, HOTPOTQA, HOTPOTQA]
    (tmp_path / "a.jsonl").write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    corpora = load_corpora([tmp_path / "a.jsonl"])
    lines = capsys.readouterr().err.splitlines()
    assert corpora.skipped == {"bad rows": 8} and len(corpora.questions) == 1
    assert all(f"a.jsonl, line {n}: " in line for n, line in zip([1, 2, 3, 4, 5, 6, 7, 9], lines, strict=True))
    assert "5a" in lines[-1] and "a.jsonl line 8" in lines[-1]
    with pytest.raises(NoGoodRows, match="line 1"):
        load_corpora([tmp_path / "a.jsonl"], strict=True)
    with pytest.raises(DataError, match="line 1"):  # whose rows are named by number
        list(read_questions(tmp_path / "a.jsonl"))


# --- files -----------------------------------------------------------------------------------------------------------
def test_shared_paragraphs_are_one_document(tmp_path):
    other = HOTPOTQA | {"_id": "5b", "supporting_facts": [["Bob", 0]],
                        "context": [["Bob", ["Bob is."]], ["Carl", ["Carl is."]]]}
    corpora = load_corpora([put(tmp_path / "a.jsonl", HOTPOTQA), put(tmp_path / "b.json", other)])
    assert texts(corpora.pool) == ["Ann\nAnn is. She was.", "Bob\nBob is.", "Carl\nCarl is."]
    assert [(q.gold, q.own) for q in corpora.questions] == [((0,), (1,)), ((1,), (2,))]


@pytest.mark.parametrize("facts", [[["Nope", 0]], [["Ann", 0], ["Nope", 0]], [["Bob", 0]]])
def test_facts_in_no_gold_paragraph_are_no_evidence(tmp_path, facts):
    """Of a row that marks its paragraphs itself."""
    (question,) = loaded(tmp_path, MUSIQUE | {"supporting_facts": facts}).questions
    assert (question.gold, question.evidence, question.supporting) == ((0,), (), ("Ann",))
    (question,) = loaded(tmp_path, MUSIQUE | {"supporting_facts": ["Ann", "Ann"]}).questions
    assert question.evidence == (0, 0)


def qa(number, impossible=False):
    answers = [] if impossible else [{"text": f"answer {number}", "answer_start": 0}]
    return {"id": f"q{number}", "question": f"Who {number}?", "answers": answers, "is_impossible": impossible}


def test_original_squad_files(tmp_path):
    paragraphs = [{"context": f"Text {n}.", "qas": [qa(n), qa(n + 10, impossible=True)]} for n in range(3)]
    articles = [{"title": "One", "paragraphs": paragraphs[:2]}, {"title": "Two", "paragraphs": paragraphs[2:]}]
    (tmp_path / "train-v2.0.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    corpora = load_corpora([tmp_path / "train-v2.0.json"])
    assert [(q.id, q.gold, q.own) for q in corpora.questions] == [
        ("q0", (0,), (1,)), ("q1", (1,), (0,)), ("q2", (2,), ())]
    assert corpora.skipped == {Skip.IMPOSSIBLE: 3}


def test_other_scripts_and_other_formats(tmp_path):
    row = HOTPOTQA | {"_id": "5b", "context": [["Ann", ["Ünïcode 東京 🙂"]], ["Bob", ["The end."]]]}
    pq.write_table(pa.Table.from_pylist([HOTPOTQA | COLUMNS]), tmp_path / "a.parquet")
    (tmp_path / "b.json").write_text(json.dumps([row]))
    pool = load_corpora([tmp_path / "a.parquet", tmp_path / "b.json"]).pool
    assert texts(pool)[2:] == ["Ann\nÜnïcode 東京 🙂", "Bob\nThe end."] and pool.words(3) == " bob end "


@pytest.mark.parametrize(("name", "content"), [
    ("cut.json", json.dumps([HOTPOTQA])[:-20]), ("articles.json", '{"data": [{"title": "a"}]}'), ("empty.jsonl", ""),
    ("table.tsv", "a\tb"),
])
def test_unreadable_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name):
        load_corpora([tmp_path / name])
