"""Raw files of four data sets: many files, one pool."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.pool import CorpusError, Skip, load_corpora
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MUSIQUE, SQUAD, put


def qa(number, impossible=False):
    answers = [] if impossible else [{"text": f"answer {number}", "answer_start": 0}]
    return {"id": f"q{number}", "question": f"Who {number}?", "answers": answers, "is_impossible": impossible}


def squad_file(path, indent=None):
    paragraphs = [{"context": f"Text {n}.", "qas": [qa(n), qa(n + 10, impossible=True)]} for n in range(3)]
    articles = [{"title": "One", "paragraphs": paragraphs[:2]}, {"title": "Two", "paragraphs": paragraphs[2:]}]
    path.write_text(json.dumps({"version": "v2.0", "data": articles}, indent=indent))
    return path



# --- rows ------------------------------------------------------------------------------------------------------------
SAME = [
    HOTPOTQA | {"context": [["Ann", ["Ann is.", "She was."]], ["Bob", ["Bob is.", ""]]]},
    HOTPOTQA | {"context": [*HOTPOTQA["context"], ["Empty", []], ["Blank", [" "]]]},
    HOTPOTQA | {"context": [["Ann", "Ann is. She was."], ["Bob", "Bob is."]]},
    MUSIQUE,
]


@pytest.mark.parametrize("row", SAME)
def test_paragraphs_with_text_are_documents_in_one_spacing(tmp_path, row):
    corpora = load_corpora([put(tmp_path / "a.jsonl", row)])
    assert [corpora.pool.texts[n] for n in range(len(corpora.pool))] == ["Ann\nAnn is. She was.", "Bob\nBob is."]
    (question,) = corpora.questions
    assert (question.gold, question.own, question.supporting) == ((0,), (1,), ("Ann",))


SKIPPED = [
    (HOTPOTQA | {"supporting_facts": [["Carl", 0]]}, Skip.GOLD_ABSENT),
    (HOTPOTQA | {"context": [["Ann", [""]], ["Bob", ["Bob is."]]]}, Skip.GOLD_ABSENT),
    (MUSIQUE | {"answerable": False}, Skip.IMPOSSIBLE),
    (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][1:]}, Skip.GOLD_ABSENT),
    (SQUAD | {"answers": {"text": [], "answer_start": []}}, Skip.IMPOSSIBLE),
    (SQUAD | {"is_impossible": True}, Skip.IMPOSSIBLE),
]


@pytest.mark.parametrize(("row", "reason"), SKIPPED)
def test_sound_rows_of_no_use_are_counted(tmp_path, row, reason):
    good = HOTPOTQA | {"_id": "good"}
    assert load_corpora([put(tmp_path / "a.jsonl", row, good)]).skipped == {reason: 1}


# --- files -----------------------------------------------------------------------------------------------------------
def test_shared_paragraphs_are_one_document(tmp_path):
    other = HOTPOTQA | {"_id": "5b", "supporting_facts": [["Bob", 0]],
                        "context": [["Bob", ["Bob is."]], ["Carl", ["Carl is."]]]}
    corpora = load_corpora([put(tmp_path / "a.jsonl", HOTPOTQA), put(tmp_path / "b.json", other)])
    texts = [corpora.pool.texts[number] for number in range(len(corpora.pool))]
    assert texts == ["Ann\nAnn is. She was.", "Bob\nBob is.", "Carl\nCarl is."]
    assert [(q.gold, q.own) for q in corpora.questions] == [((0,), (1,)), ((1,), (2,))]


@pytest.mark.parametrize("facts", [[["Nope", 0]], [["Ann", 0], ["Nope", 0]], [["Bob", 0]], ["Nope"]])
def test_facts_in_no_gold_paragraph_are_no_evidence(tmp_path, facts):
    """Of a row that marks its paragraphs itself; that ended in a traceback."""
    row = MUSIQUE | {"supporting_facts": facts}
    (question,) = load_corpora([put(tmp_path / "a.jsonl", row)]).questions
    assert (question.gold, question.evidence, question.supporting) == ((0,), (), ("Ann",))
    (question,) = load_corpora([put(tmp_path / "a.jsonl", MUSIQUE | {"supporting_facts": ["Ann", "Ann"]})]).questions
    assert question.evidence == (0, 0)


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
    "cut.jsonl": (json.dumps(HOTPOTQA)[:-5], "line 1"),
    "articles.json": ('{"data": [{"title": "a"}]}', "article 1"),
    "shape.jsonl": ('{"text": "a"}', "line 1"),
    "facts.jsonl": (json.dumps(HOTPOTQA | {"supporting_facts": [1]}), "supporting_facts"),
    "blank.jsonl": (json.dumps(HOTPOTQA | {"context": [["Ann", [" "]]]}), "line 1"),
    "twice.jsonl": ("\n".join([json.dumps(HOTPOTQA)] * 2), "line 2: id 5a"),
    "empty.jsonl": ("", "no question"),
    "table.tsv": ("a\tb", "tsv"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files_are_named(tmp_path, name):
    content, reason = UNREADABLE[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError, match=reason) as caught:
        load_corpora([tmp_path / name])
    assert name in str(caught.value)
