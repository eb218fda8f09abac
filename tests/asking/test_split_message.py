"""Where a message's document ends and its question begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.asking.split_message import split_message

LONG = "The key is red.\n\n" * 20


def is_long(text):
    return len(text) > 100


@pytest.mark.parametrize("text,document,question", [
    ("Who has the key?", "", "Who has the key?"),
    ("Ann has it.\n\nWho has the key?", "", "Ann has it.\n\nWho has the key?"),
    ("Ann has it.\n\nQuestion: Who?\nAnswer:", "Ann has it.", "Who?"),
    ("Ann has it.\n QUESTION : Who?\n", "Ann has it.", "Who?"),
    ("Question: 1+1?\nAnswer: 2\n\nQuestion: 2+2?\nAnswer:", "Question: 1+1?\nAnswer: 2", "2+2?"),
    ("Question: Who?", "", "Who?"),
    ("Question: Who?\nAnswer:", "", "Who?"),
    ("Who has the key?\nAnswer:", "", "Who has the key?"),
    ("Ann has it.\nQuestion:", "", "Ann has it.\nQuestion:"),
    (LONG + "Who has the key?", LONG.strip(), "Who has the key?"),
    (LONG + "Who has the key?\n\nAnswer:", LONG.strip(), "Who has the key?"),
    (LONG + "Who has the key?\n\n\n\nAnswer:", LONG.strip(), "Who has the key?"),
    ("Question: Who?\n\n" + LONG, LONG.strip(), "Who?"),
    ("x" * 200 + "\nWho?", "x" * 200, "Who?"),
    ("x" * 200, "", "x" * 200),
    ("The question: who knows. " * 9 + "\n\nWho?", ("The question: who knows. " * 9).strip(), "Who?"),
])  # fmt: skip
def test_the_rule(text, document, question):
    assert split_message(text, is_long) == (document, question)


def test_megabytes_are_split_at_their_end():
    document = ("Ann has the key.\n\nQuestion: none.\n" * 2**16).strip()
    assert split_message(f"{document}\n\nQuestion: Who?", is_long) == (document, "Who?")
    assert split_message("Question: Who?\n\n" + "y" * 2**17, is_long) == ("y" * 2**17, "Who?")


@given(st.text(alphabet="ab\n: QuestionAnswer", max_size=300))
def test_nothing_is_made_up_and_the_question_is_never_lost(text):
    document, question = split_message(text, is_long)
    assert document in text and question in text and bool(question) == bool(text.strip())
