"""Sections of a document: in order, without gaps, and where the chunks were cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents.documents import split_chunks
from mem_agent.asking.sections import sections_of
from mem_agent.tests.helpers.asking import VOCABULARY


def cut(text, size, decode=VOCABULARY.decode):
    chunks = split_chunks(VOCABULARY.encode_text(text), size, None).chunks
    return [text[s.start : s.end] for s in sections_of(text, chunks, decode)], chunks


def test_sections_are_what_the_chunks_say():
    texts, chunks = cut("The key of Anna is red and the key of Ben is blue. " * 9, 7)
    assert texts == [VOCABULARY.decode(chunk) for chunk in chunks] and len(texts) > 9


@given(st.text(min_size=1), st.integers(1, 9))
def test_sections_joined_are_the_document(text, size):
    texts, chunks = cut(text, size)
    assert "".join(texts) == text and len(texts) == len(chunks)


@pytest.mark.parametrize("text", ["日本語の文書です。" * 5, "a🙂b🙂🙂c" * 5])
def test_a_character_that_a_border_cuts_is_in_one_section(text):
    texts, _ = cut(text, 4)
    assert "".join(texts) == text and "�" not in "".join(texts)


CHANGES = {"lower case": str.lower, "no blanks at the ends": str.strip, "quotes": lambda text: text.replace("a", "“")}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tokenizer_that_changes_texts_shifts_no_border_far(change):
    text = "Anna has the red key. Ben has a blue one, and CARL has none at all; nobody knows why. " * 30
    exact, _ = cut(text, 20)
    found, _ = cut(text, 20, lambda ids: change(VOCABULARY.decode(ids)))
    drift = [abs(len("".join(exact[:i])) - len("".join(found[:i]))) for i in range(len(exact))]
    assert max(drift) <= 2 and "".join(found) == text


def test_no_document_has_no_sections():
    assert sections_of("", (), VOCABULARY.decode) == ()
