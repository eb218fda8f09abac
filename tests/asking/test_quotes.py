"""Which words of a section are quoted, and where they are said to stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.asking.quotes import LONGEST, quoted, sources_with_quotes
from mem_agent.asking.sources import words
from mem_agent.asking.steps import Section
from mem_agent.data.documents import Documents, read_document

TEXT = "Ann has gold. Ben lives in Rome!\nBen's metal is silver. Eve has silver too.\n\nThe end"


@pytest.mark.parametrize(("section", "answer", "question", "expected"), [
    ((0, len(TEXT)), "silver", "Which metal has Ben?", "Ben's metal is silver."),  # the question decides
    ((0, len(TEXT)), "silver", "", "Ben's metal is silver."),  # the first of equals
    ((0, len(TEXT)), "Rome", "Where?", "Ben lives in Rome!"),
    ((0, len(TEXT)), "Ben", "Who, Ben?", "Ben lives in Rome!"),  # an answer that the question holds
    ((0, 13), "Rome", "Where?", ""),  # not in this section
    ((28, 50), "Rome", "Where?", "Ben lives in Rome!"),  # a border cuts the sentence
    ((28, len(TEXT)), "end", "", "The end"),
    ((0, len(TEXT)), "", "", ""),
])  # fmt: skip
def test_the_sentence_with_most_of_the_answer_is_quoted(section, answer, question, expected):
    start, end = quoted(TEXT, Section(*section), words(answer), words(question))
    assert TEXT[start:end] == expected


def test_a_long_line_is_cut_around_the_answer():
    text = "a " * 500 + "silver" + " b" * 500
    start, end = quoted(text, Section(0, len(text)), words("silver"), frozenset())
    assert end - start == LONGEST and "silver" in text[start:end]


@given(st.text("ab. \n", max_size=60), st.data())
def test_a_quote_is_whole_and_touches_its_section(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    a, b = quoted(text, Section(start, end), words(data.draw(st.sampled_from(["a", "b", "ab"]))), frozenset())
    assert text[a:b] == text[a:b].strip() and start <= b and a <= end


def test_a_source_names_its_section_and_the_line_of_its_quote():
    files = {"one.txt": "Ann.\nBob.\n", "two.txt": "x\ny\nmetal silver.\n"}
    documents = Documents(tuple(read_document(name, text.encode()) for name, text in files.items()))
    sections = (Section(0, 10), Section(10, len(documents.text)))
    (source,) = sources_with_quotes(documents, sections, (1,), "silver", "Which metal?")
    assert source.section == 1 and source.quote == "metal silver."
    assert [str(place) for place in source.places] == ["one.txt, lines 1-2", "two.txt, lines 1-3"]
    assert [str(place) for place in source.at] == ["two.txt, line 3"]


def test_a_section_of_blanks_before_a_sentence_gives_no_quote():
    assert quoted("  a", Section(0, 1), words("a"), frozenset()) == (0, 0)
