"""Raw files of four data sets: many files, one pool."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.pool import GOLD_ABSENT, load_corpora, read_questions
from mem_agent.data.rows import DataError
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MUSIQUE, SQUAD, put


def loaded(tmp_path, *rows):
    return load_corpora([put(tmp_path / "a.jsonl", *rows)])


@pytest.mark.parametrize("row", [
    HOTPOTQA | {"context": [["Ann", ["Ann is.", "She was."]], ["Bob", ["Bob is.", ""]]]},
    HOTPOTQA | {"context": [*HOTPOTQA["context"], ["Empty", []], ["Blank", [" "]]]},
    HOTPOTQA | {"context": [["Ann", "Ann is. She was."], ["Bob", "Bob is."]]},
    MUSIQUE,
])
def test_paragraphs_with_text_are_documents_in_one_spacing(tmp_path, row):
    corpora = loaded(tmp_path, row)
    (question,) = corpora.questions
    assert corpora.documents == ("Ann\nAnn is. She was.", "Bob\nBob is.")
    assert (question.gold, question.own, question.supporting) == ((0,), (1,), ("Ann",))


@pytest.mark.parametrize(("row", "reason"), [
    (HOTPOTQA | {"supporting_facts": [["Carl", 0]]}, GOLD_ABSENT),
    (HOTPOTQA | {"context": [["Ann", [""]], ["Bob", ["Bob is."]]]}, GOLD_ABSENT),
    (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][1:]}, GOLD_ABSENT),
    (MUSIQUE | {"answerable": False}, "marked as impossible to answer"),
])
def test_sound_rows_of_no_use_are_counted(tmp_path, row, reason):
    assert loaded(tmp_path, row, HOTPOTQA | {"_id": "good"}).skipped == {reason: 1}


BAD = ['{"half', {"text": "a"}, HOTPOTQA | {"supporting_facts": [1]}, HOTPOTQA | {"context": [["Ann", [" "]]]},
       HOTPOTQA | {"answer": ""}, HOTPOTQA | {"context": []}, HOTPOTQA | {"context": "Ann is."}]


def test_bad_rows_and_repeated_ids_are_named_and_counted(tmp_path, capsys):
    rows = [*BAD, HOTPOTQA, HOTPOTQA]
    (tmp_path / "a.jsonl").write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    corpora = load_corpora([tmp_path / "a.jsonl"])
    lines = capsys.readouterr().err.splitlines()
    assert corpora.skipped == {"bad rows": 8} and len(corpora.questions) == 1
    assert all(f"a.jsonl, line {n}: " in line for n, line in zip([1, 2, 3, 4, 5, 6, 7, 9], lines, strict=True))
    assert "5a" in lines[-1] and "a.jsonl line 8" in lines[-1]
    with pytest.raises(DataError, match="line 1"):  # whose rows are named by number
        list(read_questions(tmp_path / "a.jsonl"))


def test_files_share_documents_in_any_script_and_format(tmp_path):
    other = HOTPOTQA | {"_id": "5b", "supporting_facts": [["Bob", 0]],
                        "context": [["Bob", ["Bob is."]], ["Carl", ["Ünïcode 東京 🙂"]]]}
    pq.write_table(pa.Table.from_pylist([HOTPOTQA | COLUMNS]), tmp_path / "a.parquet")
    corpora = load_corpora([tmp_path / "a.parquet", put(tmp_path / "b.json", other)])
    assert corpora.documents == ("Ann\nAnn is. She was.", "Bob\nBob is.", "Carl\nÜnïcode 東京 🙂")
    assert [(q.gold, q.own) for q in corpora.questions] == [((0,), (1,)), ((1,), (2,))]


@pytest.mark.parametrize("facts", [[["Nope", 0]], [["Ann", 0], ["Nope", 0]], [["Bob", 0]]])
def test_facts_in_no_gold_paragraph_are_no_evidence(tmp_path, facts):
    """Of a row that marks its paragraphs itself."""
    (question,) = loaded(tmp_path, MUSIQUE | {"supporting_facts": facts}).questions
    assert (question.gold, question.evidence, question.supporting) == ((0,), (), ("Ann",))
    (question,) = loaded(tmp_path, MUSIQUE | {"supporting_facts": ["Ann", "Ann"]}).questions
    assert question.evidence == (0, 0)


def test_the_distractors_of_squad_are_the_rest_of_the_article(tmp_path):
    rows = [SQUAD | {"id": f"q{n}", "title": title, "context": f"Text {n}."} for n, title in enumerate("AAB")]
    assert [(q.id, q.gold, q.own) for q in loaded(tmp_path, *rows).questions] == [
        ("q0", (0,), (1,)), ("q1", (1,), (0,)), ("q2", (2,), ())]


@pytest.mark.parametrize(("name", "content"), [("cut.json", json.dumps([HOTPOTQA])[:-20]), ("empty.jsonl", "")])
def test_unreadable_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name):
        load_corpora([tmp_path / name])
