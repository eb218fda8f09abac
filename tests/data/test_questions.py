"""Rows of the known data sets: every accepted shape is one question, bad rows say why, and files make one pool."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.data.questions import (
    Paragraph,
    load_corpora,
    read_question,
    read_questions,
    row_of,
    spaced_documents,
)
from mem_agent.data.rows import BadRow, DataError
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MEMAGENT, MUSIQUE, PLAIN, SQUAD, put, without

ANN, BOB = Paragraph("Ann", ("Ann is.", " She was.")), Paragraph("Bob", ("Bob is.",), gold=False)
TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."
FLASHRAG = {"id": "5a", "question": "Who?", "golden_answers": ["Ann"], "metadata": COLUMNS}
CONTENT = {"title": COLUMNS["context"]["title"], "content": COLUMNS["context"]["sentences"]}


def made(row):
    return row_of(read_question(row))


def document(row):
    return made(row)[0]["metadata"]["context"]


# --- paragraphs and documents ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [
    HOTPOTQA, HOTPOTQA | COLUMNS, HOTPOTQA | {"supporting_facts": ["Ann"]},
    HOTPOTQA | {name: json.dumps(HOTPOTQA[name]) for name in COLUMNS},
    FLASHRAG, FLASHRAG | {"metadata": COLUMNS | {"context": CONTENT}},  # 2WikiMultiHopQA's copy
])
def test_all_shapes_of_hotpotqa_are_one_question(shape):
    question = read_question(shape)
    assert (question.id, question.question, question.answers) == ("5a", "Who?", ("Ann",))
    assert (question.paragraphs, question.supporting, document(shape)) == ((ANN, BOB), ("Ann",), TEXT)


@pytest.mark.parametrize(("context", "text"), [
    ("Ann is.", "Ann is."),
    ('[["Ann", ["Ann is."]]]', '[["Ann", ["Ann is."]]]'),  # a text is a text, whatever it looks like
    (["Ann is.", "Bob is."], "Document 1:\nAnn is.\n\nDocument 2:\nBob is."),
    ([["Ann", "Ann is."], [None, ["Bob", " is."]]], "Document 1:\nAnn\nAnn is.\n\nDocument 2:\nBob is."),
    ([{"title": "Ann", "text": "Ann is."}, {"text": "Bob is."}], "Document 1:\nAnn\nAnn is.\n\nDocument 2:\nBob is."),
    ([["Ann", []], ["Bob", [" "]]], "Document 1:\nAnn\n\n\nDocument 2:\nBob\n "),
])
def test_shapes_of_a_document(context, text):
    assert document(PLAIN | {"context": context}) == text
    assert document(without(PLAIN, "context") | {"paragraphs": context}) == text


def test_sentences_are_spaced_apart_only_where_a_row_brings_no_blanks():
    """2Wiki's rows bring none; in HotpotQA only quotes follow a sentence without one."""
    ann, bob = Paragraph("Ann", ("Ann is.", "", "She", "was.")), Paragraph("Bob", ("Bob", " is.", "Now."))
    assert spaced_documents([ann, bob]) == ["Ann\nAnn is. She was.", "Bob\nBob is. Now."]
    assert ann.document == "Ann\nAnn is.Shewas."
    go = Paragraph("Go", ('She wrote "Teen Titans Go!', '" is.', " Then another."))
    one, other = Paragraph("One", ('"Go!', '" is.')), Paragraph("Other", ("He.", " She."))
    assert spaced_documents([go, one, other]) == [paragraph.document for paragraph in (go, one, other)]


def test_who_marks_gold_paragraphs():
    unmarked, musique = read_question(without(HOTPOTQA, "supporting_facts")), read_question(MUSIQUE)
    assert unmarked.supporting == () and all(paragraph.gold for paragraph in unmarked.paragraphs)
    assert [(p.title, p.gold) for p in musique.paragraphs] == [("Ann", True), ("Bob", False)]
    assert (musique.id, musique.answers, musique.supporting) == ("2hop__1", ("Ann", "Ann Lee"), ("Ann",))


# --- questions and answers -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("given", "answers"), [
    (["B", "A", "", "B", None], ("B", "A")), (0, ("0",)), ([2.5, float("nan"), "2.5"], ("2.5",)),
])
def test_shapes_of_answers(given, answers):
    for row in (PLAIN | {"answer": given}, without(PLAIN, "answer") | {"answers": given},
                MEMAGENT | {"reward_model": {"ground_truth": given}}):
        assert read_question(row).answers == answers


def test_the_question_is_what_the_user_says_or_that_of_extra_info():
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    prompts = ["Who?", said, None, [], said[:1]]
    questions = [read_question(MEMAGENT | {"prompt": prompt}).question for prompt in prompts]
    assert questions == ["Who?", "Who?", "Who, again?", "Who, again?", "Who, again?"]


# --- training rows ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("row", "evidence"), [
    (HOTPOTQA, {"supporting_facts": [["Ann", 0], ["Ann", 1]]}), (MUSIQUE, {"supporting": ("Ann",)}),
    (SQUAD, {"supporting": ("Ann",)}),
])
def test_the_evidence_reaches_the_training_row(row, evidence):
    written, text = made(row)
    assert (written["prompt"], written["label"], text) == ("Who?", "Ann", None)
    assert evidence.items() <= written["metadata"].items()


# --- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("row", "field"), [
    (without(HOTPOTQA, "answer"), "answer"), (HOTPOTQA | {"answer": {"text": "Ann"}}, "answer"),
    (FLASHRAG | {"golden_answers": []}, "answer"), (HOTPOTQA | {"question": " "}, "question"),
    (HOTPOTQA | {"context": ["", " "]}, "context"), (HOTPOTQA | {"context": [["Ann", "a", "b"]]}, "context"),
    (MUSIQUE | {"paragraphs": [1]}, "paragraphs"), ({"text": "a"}, "schema"),
    (MEMAGENT | {"prompt": ["Who?"], "extra_info": None}, "question"), (MEMAGENT | {"reward_model": {}}, "answer"),
])
def test_bad_rows_name_the_field(row, field):
    with pytest.raises(BadRow, match=field):
        made(row)


# --- pools -----------------------------------------------------------------------------------------------------------
ABSENT = "with a supporting document that is not among its paragraphs"


def loaded(tmp_path, *rows):
    return load_corpora([put(tmp_path / "a.jsonl", *rows)])


@pytest.mark.parametrize("row", [
    HOTPOTQA | {"context": [["Ann", ["Ann is.", "She was."]], ["Bob", ["Bob is.", ""]], ["Empty", []]]}, MUSIQUE])
def test_paragraphs_with_text_are_documents_in_one_spacing(tmp_path, row):
    corpora = loaded(tmp_path, row)
    (question,) = corpora.questions
    assert corpora.documents == ("Ann\nAnn is. She was.", "Bob\nBob is.")
    assert (question.gold, question.own, question.supporting) == ((0,), (1,), ("Ann",))


@pytest.mark.parametrize(("row", "reason"), [
    (HOTPOTQA | {"supporting_facts": [["Carl", 0]]}, ABSENT),
    (HOTPOTQA | {"context": [["Ann", [""]], ["Bob", ["Bob is."]]]}, ABSENT),
    (MUSIQUE | {"paragraphs": MUSIQUE["paragraphs"][1:]}, ABSENT),
    (MUSIQUE | {"answerable": False}, "marked as impossible to answer"),
])
def test_sound_rows_of_no_use_are_counted(tmp_path, row, reason):
    assert loaded(tmp_path, row, HOTPOTQA | {"_id": "good"}).skipped == {reason: 1}


BAD = ['{"half', {"text": "a"}, HOTPOTQA | {"supporting_facts": [1]}, HOTPOTQA | {"context": [["Ann", [" "]]]},
       HOTPOTQA | {"answer": ""}, HOTPOTQA | {"context": "Ann is."}]


def test_bad_rows_and_repeated_ids_are_named_and_counted(tmp_path, capsys):
    rows = [*BAD, HOTPOTQA, HOTPOTQA]
    (tmp_path / "a.jsonl").write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    corpora = load_corpora([tmp_path / "a.jsonl"])
    lines = capsys.readouterr().err.splitlines()
    assert corpora.skipped == {"bad rows": 7} and len(corpora.questions) == 1 and "id 5a" in lines[-1]
    assert all(f"a.jsonl, line {n}: " in line for n, line in zip([1, 2, 3, 4, 5, 6, 8], lines, strict=True))
    with pytest.raises(DataError, match="line 1"):  # whose rows are named by number
        list(read_questions(tmp_path / "a.jsonl"))
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="empty"):
        load_corpora([tmp_path / "empty.jsonl"])


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
