"""Rows of the known data sets: every accepted shape is one question, and bad rows say why."""

import json
from decimal import Decimal

import pytest

from mem_agent.data.questions import Impossible, Paragraph, Question, read_question, row_of, spaced_documents
from mem_agent.data.questions import training_row as made
from mem_agent.data.rows import BadRow
from mem_agent.rewards.turn_rewards import supporting_titles
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MEMAGENT, MUSIQUE, PLAIN, SQUAD, without

ANN, BOB = Paragraph("Ann", ("Ann is.", " She was.")), Paragraph("Bob", ("Bob is.",), gold=False)
TEXT = "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."
FLASHRAG = {"id": "5a", "question": "Who?", "golden_answers": ["Ann"], "metadata": COLUMNS}
CONTENT = {"title": COLUMNS["context"]["title"], "content": COLUMNS["context"]["sentences"]}
OWN = {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context": "Ann is.", "level": 3}}


def document(row):
    return made(row, None)[0]["metadata"]["context"]


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
    unmarked = read_question(without(HOTPOTQA, "supporting_facts"))
    assert unmarked.supporting == () and all(paragraph.gold for paragraph in unmarked.paragraphs)
    musique = read_question(MUSIQUE)
    assert [(p.title, p.gold) for p in musique.paragraphs] == [("Ann", True), ("Bob", False)]
    assert (musique.id, musique.answers, musique.supporting) == ("2hop__1", ("Ann", "Ann Lee"), ("Ann",))
    for facts in ([1], "Ann", {"title": "Ann"}, 7):  # other marks are kept for those who know them
        question = read_question(HOTPOTQA | {"supporting_facts": facts})
        assert question.extras["supporting_facts"] == facts and question.supporting == ()


# --- questions and answers -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("given", "answers"), [
    ("Ann", ("Ann",)), (["B", "A", "", "B", None], ("B", "A")), (1995, ("1995",)), (0, ("0",)),
    ([2.5, Decimal("1.10"), "2.5"], ("2.5", "1.10")), ([float("nan"), "Ann"], ("Ann",)),
])
def test_shapes_of_answers(given, answers):
    for row in (PLAIN | {"answer": given}, without(PLAIN, "answer") | {"answers": given},
                MEMAGENT | {"reward_model": {"ground_truth": given}}):
        assert read_question(row).answers == answers


@pytest.mark.parametrize(("prompt", "question"), [
    ("Who?", "Who?"), (None, "Who, again?"), ([], "Who, again?"),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}], "Who?"),
    ([{"role": "system", "content": "Be brief."}], "Who, again?"),
])
def test_shapes_of_a_prompt(prompt, question):
    assert read_question(MEMAGENT | {"prompt": prompt}).question == question


def test_ids_and_optional_fields():
    named, other = read_question(PLAIN), read_question(PLAIN | {"question": "W?"})
    assert len(named.id) == 16 and named.id != other.id
    row = PLAIN | {"id": 7, "_id": "x", "level": "hard", "type": None, "task": "niah", "other": 1}
    assert read_question(row).id == "7" and read_question(row).extras == {"id": 7, "level": "hard", "task": "niah"}


# --- training rows ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("row", [HOTPOTQA, MUSIQUE, SQUAD])
def test_the_evidence_reaches_the_training_row(row):
    written, text = made(row, None)
    assert (written["prompt"], written["label"], text) == ("Who?", "Ann", None)
    assert supporting_titles(written["metadata"]) == ["Ann"]


def test_a_long_document_is_named_by_its_id():
    row, text = row_of(Question("Who?", ("Ann", "Eve"), "x" * 20_001))
    assert text == "x" * 20_001
    assert row["metadata"] == {"ground_truth": ("Ann", "Eve"), "context_id": "991b716ebf8586a3"}
    assert row_of(Question("Who?", ("Ann",), "x" * 20_000))[1] is None


def test_own_rows_stay_as_they_are():
    for row in (OWN, without(OWN, "label"), OWN | {"prompt": [{"role": "user", "content": "Who?"}]},
                OWN | {"metadata": {"ground_truth": ["Ann"]}}):
        assert made(row | {"other": 1}, None) == (row, None)


# --- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("row", [MUSIQUE | {"answerable": False}, SQUAD | {"is_impossible": True},
                                 SQUAD | {"answers": {"text": [], "answer_start": []}}])
def test_questions_without_an_answer_on_purpose(row):
    with pytest.raises(Impossible):
        read_question(row)


@pytest.mark.parametrize(("row", "field"), [
    (without(HOTPOTQA, "answer"), "answer"), (HOTPOTQA | {"answer": ["", None]}, "answer"),
    (HOTPOTQA | {"answer": {"text": "Ann"}}, "answer"), (FLASHRAG | {"golden_answers": []}, "answer"),
    (HOTPOTQA | {"question": " "}, "question"), (HOTPOTQA | {"context": []}, "context"),
    (HOTPOTQA | {"context": ["", " "]}, "context"), (HOTPOTQA | {"context": [["Ann", "a", "b"]]}, "context"),
    (HOTPOTQA | {"context": {"title": ["Ann"], "sentences": []}}, "context"),
    (MUSIQUE | {"paragraphs": [1]}, "paragraphs"), ({"text": "a"}, "schema"),
    (MEMAGENT | {"prompt": ["Who?"], "extra_info": None}, "question"), (MEMAGENT | {"reward_model": {}}, "answer"),
    (OWN | {"metadata": {"context": "text"}}, "ground_truth"), (OWN | {"metadata": "text"}, "metadata"),
    (OWN | {"prompt": [{"role": "system", "content": "Be brief."}]}, "prompt"),
])
def test_bad_rows_name_the_field(row, field):
    with pytest.raises(BadRow, match=field) as caught:
        made(row, None)
    assert not isinstance(caught.value, Impossible)
