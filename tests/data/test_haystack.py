"""Gold documents among distractors: who gets in, and that the order tells nothing."""

import random
from collections import Counter

import pytest

from mem_agent.data.pool import PoolQuestion
from mem_agent.data.questions import assemble
from mem_agent.data.rows import DataError
from mem_agent.data.synthesize import haystack


def plain(size):
    return [f"Title {n}\nText {n}." for n in range(size)]


def question(answers=("Ann Lee",), gold=(0,), own=(), name="q"):
    return PoolQuestion(name, "Who?", tuple(answers), tuple(gold), (*gold, *own))


def test_worked_example():
    assert assemble(["Ann\nAnn is.", "Bob\nBob is."]) == "Document 1:\nAnn\nAnn is.\n\nDocument 2:\nBob\nBob is."


def test_every_document_once_and_golds_always_there():
    documents, asked = plain(60), question(gold=(3, 7), own=(5, 8))
    for length in (2, 3, 4, 30, 60):
        chosen = haystack(documents, asked, length, seed=1)
        assert len(chosen) == len(set(chosen)) == length and {3, 7} <= set(chosen)
        assert length < 4 or {5, 8} <= set(chosen)


def test_golds_stand_everywhere_equally_often():
    documents, places = plain(50), Counter()
    for number in range(2000):
        chosen = haystack(documents, question(gold=(3, 7), own=(5,), name=f"q{number}"), 10, seed=1)
        places.update((chosen.index(3), chosen.index(7)))
    assert sum((places[place] - 400) ** 2 / 400 for place in range(10)) < 27.9  # chi-square, p = 0.001


def test_a_sample_depends_on_seed_question_and_length_alone():
    documents, first, second = plain(100), question(name="a"), question(name="b")
    again = [haystack(documents, first, 10, seed=1) for _ in range(2)]
    others = {haystack(documents, second, 10, 1), haystack(documents, first, 10, 2), haystack(documents, first, 11, 1)}
    assert again[0] == again[1] and again[0] not in {other[:10] for other in others} and len(others) == 3


@pytest.mark.parametrize(("answer", "text", "holds"), [
    ("Ann Lee", "She was ANN LEE.", True), ("Ann Lee", "Joann Leeds was there.", False),
    ("the Rock", "They call him Rock, always.", True), ("1,984", "in 1984", True),
    ("The The", "The The made records.", True), ("The The", "The thing.", False),
    ("no", "There was no way to know.", False), ("yes", "Yes they were.", False), ("!?", "What !? no.", False),
])
def test_distractors_never_hold_an_answer(answer, text, holds):
    documents = ["Gold\nIt is.", *(f"T{n}\n{text} {n}" for n in range(20)), *(f"U{n}\nClean {n}" for n in range(20))]
    asked = question(answers=("something else", answer), own=(1, 2))
    chosen = haystack(documents, asked, 21, seed=1)
    assert any("T" == documents[n][0] for n in chosen) is not holds


def test_the_published_layout_is_one_shuffle_for_all_questions():
    """``random.Random(4)`` puts the 10 paragraphs of any question at these places of 200 documents, counted from 1."""
    documents = [f"{text} Ann Lee" for text in plain(400)]  # strangers may hold the answer
    for first in (0, 90):
        own = range(first, first + 10)
        asked = PoolQuestion(f"q{first}", "Who?", ("Ann Lee",), (own[3],), tuple(own))
        chosen = haystack(documents, asked, 200, 1, published=True)
        assert sorted(chosen.index(n) + 1 for n in own) == [7, 10, 17, 81, 88, 96, 109, 154, 177, 191]
        shuffled = list(range(200))
        random.Random(4).shuffle(shuffled)
        assert [chosen.index(n) for n in own] == [shuffled.index(k) for k in range(10)]


@pytest.mark.parametrize(("asked", "documents", "number"), [
    (question(gold=(0, 1, 2)), 2, "3"), (question(answers=("Text 4",)), 40, "39"), (question(), 41, "40"),
])
def test_a_pool_too_small_says_what_there_is(asked, documents, number):
    with pytest.raises(DataError, match=f"question q.*{number}"):
        haystack(plain(40), asked, documents, seed=1)
