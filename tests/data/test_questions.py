"""Rows of the known data sets: every accepted shape is one question, and bad rows say why."""

import json
from decimal import Decimal

import pytest

from mem_agent.data.paragraphs import Paragraph, spaced_documents
from mem_agent.data.questions import (
    BadRow,
    Impossible,
    Question,
    own_row,
    read_memagent_question,
    read_question,
)
from mem_agent.tests.helpers.question_rows import COLUMNS, HOTPOTQA, MEMAGENT, MUSIQUE, PLAIN, SQUAD, without

ANN, BOB = Paragraph("Ann", ("Ann is.", " She was.")), Paragraph("Bob", ("Bob is.",), gold=False)
OWN = {"prompt": "Who?", "label": "Ann", "metadata": {"ground_truth": ["Ann"], "context": "Ann is.", "level": 3}}


# --- paragraphs and documents ----------------------------------------------------------------------------------------
SAME = [
    HOTPOTQA,
    HOTPOTQA | COLUMNS,
    HOTPOTQA | {name: json.dumps(HOTPOTQA[name]) for name in COLUMNS},
    HOTPOTQA | {"supporting_facts": ["Ann"]},
]


@pytest.mark.parametrize("shape", SAME)
def test_all_shapes_of_hotpotqa_are_one_question(shape):
    question = read_question(shape)
    assert (question.id, question.question, question.answers) == ("5a", "Who?", ("Ann",))
    assert (question.paragraphs, question.supporting) == ((ANN, BOB), ("Ann",))
    assert question.document == "Document 1:\nAnn\nAnn is. She was.\n\nDocument 2:\nBob\nBob is."


FLASHRAG = {"id": "5a", "question": "Who?", "golden_answers": ["Ann"], "metadata": COLUMNS}


@pytest.mark.parametrize("sentences", ["sentences", "content"])
def test_rows_of_flashrag_are_those_of_the_data_set(sentences):
    """2WikiMultiHopQA's copy has ``content``."""
    columns = COLUMNS["context"]
    context = {"title": columns["title"], sentences: columns["sentences"]}
    assert read_question(FLASHRAG | {"metadata": COLUMNS | {"context": context}}) == read_question(HOTPOTQA | COLUMNS)


DOCUMENTS = [
    ("Ann is.", "Ann is."),
    ('[["Ann", ["Ann is."]]]', '[["Ann", ["Ann is."]]]'),  # a text is a text, whatever it looks like
    (["Ann is.", "Bob is."], "Document 1:\nAnn is.\n\nDocument 2:\nBob is."),
    ([["Ann", "Ann is."], ["Bob", ["Bob", " is."]]], "Document 1:\nAnn\nAnn is.\n\nDocument 2:\nBob\nBob is."),
    ([[None, "Ann is."], "Bob is."], "Document 1:\nAnn is.\n\nDocument 2:\nBob is."),
    ([{"title": "Ann", "text": "Ann is."}, {"text": "Bob is."}], "Document 1:\nAnn\nAnn is.\n\nDocument 2:\nBob is."),
    ([{"title": "Ann", "sentences": ["Ann", " is."]}], "Document 1:\nAnn\nAnn is."),
    ([["Ann", []], ["Bob", [" "]]], "Document 1:\nAnn\n\n\nDocument 2:\nBob\n "),
]


@pytest.mark.parametrize(("context", "document"), DOCUMENTS)
@pytest.mark.parametrize("column", ["context", "paragraphs"])
def test_shapes_of_a_document(context, document, column):
    assert read_question(without(PLAIN, "context") | {column: context}).document == document


def test_sentences_are_spaced_apart_only_where_a_row_brings_no_blanks():
    """2Wiki's rows; RULER and plain rows keep what the data has."""
    ann, bob = Paragraph("Ann", ("Ann is.", "", "She", "was.")), Paragraph("Bob", ("Bob", " is.", "Now."))
    assert spaced_documents([ann]) == ["Ann\nAnn is. She was."]
    assert ann.document == "Ann\nAnn is.Shewas."
    assert spaced_documents([ann, bob]) == ["Ann\nAnn is. She was.", "Bob\nBob is. Now."]


def test_no_blank_stands_before_the_closing_quotes_of_hotpotqa():
    """In HotpotQA a sentence that ends inside quotes is followed by the quotes without a blank."""
    go = Paragraph("Go", ('She wrote "Teen Titans Go!', '" is.', " Then another."))
    one = Paragraph("One", ('"Go!', '" is.'))
    other = Paragraph("Other", ("He.", " She."))
    assert spaced_documents([go, one, other]) == [paragraph.document for paragraph in (go, one, other)]


def test_without_marks_every_paragraph_is_gold():
    question = read_question(without(HOTPOTQA, "supporting_facts"))
    assert question.supporting == () and all(paragraph.gold for paragraph in question.paragraphs)


@pytest.mark.parametrize("facts", [[1], "Ann", {"title": "Ann"}, [[["Ann"], 0]], 7])
def test_other_marks_are_kept_for_those_who_know_them(facts):
    question = read_question(HOTPOTQA | {"supporting_facts": facts})
    assert question.extras["supporting_facts"] == facts and question.supporting == ()


def test_musique_marks_its_paragraphs():
    question = read_question(MUSIQUE)
    assert [(p.title, p.gold) for p in question.paragraphs] == [("Ann", True), ("Bob", False)]
    assert (question.id, question.answers, question.supporting) == ("2hop__1", ("Ann", "Ann Lee"), ("Ann",))


def test_squad_rows_are_a_text_and_a_paragraph_of_an_article():
    question = read_question(SQUAD)
    assert question.document == "Ann is. She was." and question.answers == ("Ann", "Ann Lee")
    assert question.paragraphs == (Paragraph("Ann", ("Ann is. She was.",)),)
    assert (question.supporting, question.article) == (("Ann",), "Ann")
    assert read_question(without(SQUAD, "title")).paragraphs == ()


def test_a_text_beside_supporting_facts_stays_the_document():
    assert read_question(HOTPOTQA | {"context": "Ann is."}).document == "Ann is."


# --- questions and answers -------------------------------------------------------------------------------------------
ANSWERS = [
    ("Ann", ("Ann",)),
    (["B", "A", "", "B", None], ("B", "A")),
    (1995, ("1995",)),
    ([2.5, Decimal("1.10"), "2.5"], ("2.5", "1.10")),
    ([float("nan"), "Ann"], ("Ann",)),
    (0, ("0",)),
]


@pytest.mark.parametrize(("given", "answers"), ANSWERS)
def test_shapes_of_answers(given, answers):
    assert read_question(PLAIN | {"answer": given}).answers == answers
    assert read_question(without(PLAIN, "answer") | {"answers": given}).answers == answers
    assert read_memagent_question(MEMAGENT | {"reward_model": {"ground_truth": given}}).answers == answers


PROMPTS = [
    ("Who?", "Who?"),
    ([{"role": "user", "content": "Who?"}], "Who?"),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}], "Who?"),
    ([{"role": "user", "content": [{"type": "text", "text": "Who?"}]}], "Who?"),
    ([{"role": "system", "content": "Be brief."}], "Who, again?"),
    (None, "Who, again?"),
    ([], "Who, again?"),
]


@pytest.mark.parametrize(("prompt", "question"), PROMPTS)
def test_shapes_of_a_prompt(prompt, question):
    assert read_memagent_question(MEMAGENT | {"prompt": prompt}).question == question


def test_a_row_without_id_is_known_by_its_question():
    named, other = read_question(PLAIN), read_question(PLAIN | {"question": "Who, then?", "_id": None})
    assert len(named.id) == 16 and named.id != other.id
    assert read_question(PLAIN | {"id": 7, "_id": "x"}).id == "7"


def test_optional_fields_are_kept():
    row = PLAIN | {"id": 7, "level": "hard", "type": None, "task": "niah", "supporting_facts": ["Ann"], "other": 1}
    assert read_question(row).extras == {"id": 7, "level": "hard", "supporting_facts": ["Ann"], "task": "niah"}


def test_a_document_may_be_left_out_on_request():
    expected = Question("Who?", ("Ann",))
    assert read_question(without(PLAIN, "context"), needs_document=False) == expected
    assert expected.document == ""
    row = without(MEMAGENT, "context")
    assert read_memagent_question(row, needs_document=False).document == ""


# --- what is refused -------------------------------------------------------------------------------------------------
IMPOSSIBLE = [
    MUSIQUE | {"answerable": False},
    SQUAD | {"answers": {"text": [], "answer_start": []}},
    SQUAD | {"is_impossible": True},
]


@pytest.mark.parametrize("row", IMPOSSIBLE)
def test_questions_without_an_answer_on_purpose(row):
    with pytest.raises(Impossible):
        read_question(row)


BAD_ROWS = [
    (without(HOTPOTQA, "answer"), "answer"),
    (HOTPOTQA | {"answer": ["", None]}, "answer"),
    (HOTPOTQA | {"answer": {"text": "Ann"}}, "answer"),
    (HOTPOTQA | {"question": " "}, "question"),
    (HOTPOTQA | {"task": 3}, "task"),
    (without(HOTPOTQA, "context"), "--no-context"),
    (HOTPOTQA | {"context": []}, "context"),
    (HOTPOTQA | {"context": ["", " "]}, "context"),
    (HOTPOTQA | {"context": {"title": ["Ann"], "sentences": []}}, "title and sentences"),
    (HOTPOTQA | {"context": [["Ann", "a", "b"]]}, "context"),
    (MUSIQUE | {"paragraphs": [1]}, "paragraphs"),
    (FLASHRAG | {"golden_answers": []}, "answer"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_bad_rows_say_why(row, reason):
    with pytest.raises(BadRow, match=reason) as caught:
        read_question(row)
    assert not isinstance(caught.value, Impossible)


BAD_MEMAGENT_ROWS = [
    ({"context": None}, "context"),
    ({"context": ["text"]}, "context"),
    ({"prompt": "", "extra_info": None}, "prompt"),
    ({"prompt": ["Who?"]}, "prompt"),
    ({"reward_model": None}, "ground_truth"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_MEMAGENT_ROWS)
def test_bad_rows_of_memagent_say_why(change, reason):
    with pytest.raises(BadRow, match=reason):
        read_memagent_question(MEMAGENT | change)


# --- the pack's own rows ---------------------------------------------------------------------------------------------
def test_own_rows_stay_as_they_are():
    chat = [{"role": "user", "content": "Who?"}]
    for row in (OWN, without(OWN, "label"), OWN | {"prompt": chat}):
        assert own_row(row | {"other": 1}) == row
    stored = OWN | {"metadata": {"ground_truth": "Ann", "context_id": "9f86d081884c7d65", "x": {"y": [1]}}}
    assert own_row(stored) == stored
    bare = OWN | {"metadata": {"ground_truth": ["Ann"]}}
    assert own_row(bare, needs_document=False) == bare


BAD_OWN_ROWS = [
    ({"metadata": {"ground_truth": ["Ann"]}}, "context"),
    ({"metadata": {"context": "text"}}, "ground_truth"),
    ({"metadata": {"ground_truth": ["Ann"], "context_id": 7}}, "context_id"),
    ({"metadata": "text"}, "metadata"),
    ({"prompt": [{"role": "system", "content": "Be brief."}]}, "prompt"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_OWN_ROWS)
def test_bad_own_rows_say_why(change, reason):
    with pytest.raises(BadRow, match=reason):
        own_row(OWN | change)
