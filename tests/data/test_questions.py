"""Rows of the known data sets: every accepted shape is one question, bad rows say why, and files make one pool."""

import json

import pytest

from mem_agent.data.questions import Paragraph, load_corpora, read_question, read_questions, row_of, spaced_documents
from mem_agent.data.rows import DataError
from mem_agent.tests.helpers.question_rows import (
    COLUMNS,
    FLASHRAG,
    HOTPOTQA,
    MEMAGENT,
    MUSIQUE,
    PLAIN,
    SQUAD,
    put,
    without,
)

ANN, BOB = Paragraph("Ann", ("Ann is.", " She was.")), Paragraph("Bob", ("Bob is.",), gold=False)
TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."
CONTENT = {"title": COLUMNS["context"]["title"], "content": COLUMNS["context"]["sentences"]}


def document(row):
    return row_of(read_question(row))[0]["metadata"]["context"]


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
    ('[["Ann", ["Ann is."]]]', '[["Ann", ["Ann is."]]]'),  # a text is a text, whatever it looks like
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
    go = Paragraph("Go", ('She wrote "Teen Titans Go!', '" is.', " Then another."))
    one, other = Paragraph("One", ('"Go!', '" is.')), Paragraph("Other", ("He.", " She."))
    assert spaced_documents([go, one, other]) == [paragraph.document for paragraph in (go, one, other)]


def test_shapes_of_answers():
    for given, answers in ((["B", "A", "", "B"], ("B", "A")), (0, ("0",)), ([2.5, float("nan"), "2.5"], ("2.5",))):
        for row in (PLAIN | {"answer": given}, without(PLAIN, "answer") | {"answers": given},
                    MEMAGENT | {"reward_model": {"ground_truth": given}}):
            assert read_question(row).answers == answers


def test_the_question_is_what_the_user_says_or_that_of_extra_info():
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    for prompt, asked in (("Who?", "Who?"), (said, "Who?"), (None, "Who, again?"), (said[:1], "Who, again?")):
        assert read_question(MEMAGENT | {"prompt": prompt}).question == asked


@pytest.mark.parametrize(("row", "evidence"), [
    (HOTPOTQA, {"supporting_facts": [["Ann", 0], ["Ann", 1]]}), (SQUAD, {"supporting": ("Ann",)}),
    (MUSIQUE, {"supporting": ("Ann",), "id": "2hop__1", "ground_truth": ("Ann", "Ann Lee")}),
])
def test_the_evidence_reaches_the_training_row(row, evidence):
    written, text = row_of(read_question(row))
    assert (written["prompt"], written["label"], text) == ("Who?", "Ann", None)
    assert evidence.items() <= written["metadata"].items()


# --- pools -----------------------------------------------------------------------------------------------------------
def loaded(tmp_path, *rows):
    return load_corpora([put(tmp_path / "a.jsonl", *rows)])


def test_files_share_documents_of_text_in_one_spacing(tmp_path):
    unspaced = [["Ann", ["Ann is.", "She was."]], ["Bob", ["Bob is.", ""]], ["Empty", []]]
    other = HOTPOTQA | {"_id": "5b", "supporting_facts": [["Bob", 0]],
                        "context": [["Bob", ["Bob is."]], ["Carl", ["Ünïcode 東京 🙂"]]]}
    corpora = load_corpora([put(tmp_path / "a.jsonl", HOTPOTQA | {"context": unspaced}, MUSIQUE),
                            put(tmp_path / "b.json", other)])
    assert corpora.documents == ("Ann\nAnn is. She was.", "Bob\nBob is.", "Carl\nÜnïcode 東京 🙂")
    assert [(q.gold, q.own) for q in corpora.questions] == [((0,), (1,)), ((0,), (1,)), ((1,), (2,))]


def test_what_cannot_be_used_is_named_or_counted_by_reason(tmp_path, capsys):
    bad = ["text", HOTPOTQA | {"supporting_facts": [1]}, HOTPOTQA | {"context": [["Ann", [" "]]]}, PLAIN]
    absent = HOTPOTQA | {"_id": "5b", "supporting_facts": [["Carl", 0]]}
    corpora = loaded(tmp_path, *bad, HOTPOTQA, HOTPOTQA, absent, MUSIQUE | {"answerable": False})
    assert len(corpora.questions) == 1 and corpora.skipped == {
        "bad rows": 5, "with a supporting document that is not among its paragraphs": 1,
        "marked as impossible to answer": 1}
    lines = capsys.readouterr().err.splitlines()
    assert all(f"a.jsonl, line {n}: " in line for n, line in zip([1, 2, 3, 4, 6], lines, strict=True))
    with pytest.raises(DataError, match="line 1"):  # whose rows are named by number
        list(read_questions(tmp_path / "a.jsonl"))


def test_the_distractors_of_squad_are_the_rest_of_the_article(tmp_path):
    rows = [SQUAD | {"id": f"q{n}", "title": title, "context": f"Text {n}."} for n, title in enumerate("AAB")]
    assert [(q.id, q.gold, q.own) for q in loaded(tmp_path, *rows).questions] == [
        ("q0", (0,), (1,)), ("q1", (1,), (0,)), ("q2", (2,), ())]
