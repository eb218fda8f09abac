"""Gold documents among distractors: who gets in, and that the order tells nothing."""

import random
from collections import Counter

import pytest

from mem_agent.data.haystack import Layout, haystack
from mem_agent.data.pool import Pool, PoolQuestion
from mem_agent.data.questions import assemble
from mem_agent.data.rows import DataError


def pool_of(*texts):
    return Pool(texts)


def plain_pool(size):
    return pool_of(*(f"Title {n}\nText {n}." for n in range(size)))


def question(answers=("Ann Lee",), gold=(0,), own=(), name="q"):
    return PoolQuestion(name, "Who?", tuple(answers), tuple(gold), (*gold, *own), ())


def test_worked_example():
    assert assemble(["Ann\nAnn is.", "Bob\nBob is."]) == "Document 1:\nAnn\nAnn is.\n\nDocument 2:\nBob\nBob is."


def test_every_document_once_and_golds_always_there():
    pool, asked = plain_pool(60), question(gold=(3, 7), own=(5, 8))
    for documents in (2, 3, 4, 30, 60):
        chosen = haystack(pool, asked, documents, seed=1)
        assert len(chosen) == len(set(chosen)) == documents and {3, 7} <= set(chosen)
        assert documents < 4 or {5, 8} <= set(chosen)


def test_golds_stand_everywhere_equally_often():
    pool, places = plain_pool(50), Counter()
    for number in range(2000):
        chosen = haystack(pool, question(gold=(3, 7), own=(5,), name=f"q{number}"), 10, seed=1)
        places.update((chosen.index(3), chosen.index(7)))
    assert sum((places[place] - 400) ** 2 / 400 for place in range(10)) < 27.9  # chi-square, p = 0.001


def test_the_printed_number_says_nothing_about_gold():
    """The number of a document is where it stands, whoever it is."""
    pool = plain_pool(20)
    for number in range(5):
        chosen = haystack(pool, question(name=f"q{number}"), 20, seed=1)
        lines = assemble(pool[n] for n in chosen).splitlines()
        assert [line for line in lines if line.startswith("Document ")] == [f"Document {i}:" for i in range(1, 21)]


def test_a_sample_depends_on_seed_question_and_length_alone():
    pool, first = plain_pool(100), question(name="a")
    again = [haystack(pool, first, 10, seed=1) for _ in range(2)]
    second = question(name="b")
    others = {haystack(pool, second, 10, 1), haystack(pool, first, 10, 2), haystack(pool, first, 11, 1)[:10]}
    assert again[0] == again[1] and again[0] not in others and len(others) == 3


HOLDERS = [
    ("Ann Lee", "She was ANN LEE.", True),
    ("Ann Lee", "Joann Leeds was there.", False),
    ("the Rock", "They call him Rock, always.", True),
    ("1,984", "in 1984", True),
    ("The The", "The The made records.", True),
    ("The The", "The thing.", False),
    ("no", "There was no way to know.", False),
    ("yes", "Yes they were.", False),
    ("!?", "What !? no.", False),
]


@pytest.mark.parametrize(("answer", "text", "holds"), HOLDERS)
def test_distractors_never_hold_an_answer(answer, text, holds):
    pool = pool_of("Gold\nIt is.", *(f"T{n}\n{text} {n}" for n in range(20)), *(f"U{n}\nClean {n}" for n in range(20)))
    asked = question(answers=("something else", answer), own=(1, 2))
    chosen = haystack(pool, asked, 21, seed=1)
    assert any("T" == pool[n][0] for n in chosen) is not holds


def test_gold_documents_keep_their_answer():
    pool = pool_of("Ann\nAnn Lee is.", "Bob\nBob is.")
    assert set(haystack(pool, question(gold=(0,)), 2, seed=1)) == {0, 1}


# --- other layouts ---------------------------------------------------------------------------------------------------
def test_hard_distractors_are_kept_on_request_and_strangers_stay_clean():
    texts = ["Gold\nAnn Lee is.", "Hard\nAnn Lee was.", "Soft\nNobody."]
    pool = pool_of(*texts, *(f"T{n}\nAnn Lee {n}" for n in range(20)), *(f"U{n}\nClean {n}" for n in range(20)))
    asked = question(own=(1, 2))
    for documents in (3, 10):
        chosen = haystack(pool, asked, documents, 1, Layout.KEEP_OWN)
        assert {0, 1, 2} <= set(chosen) and not any(3 <= n < 23 for n in chosen) and len(set(chosen)) == documents
    assert 1 not in haystack(pool, asked, 10, 1)
    with pytest.raises(DataError, match="--keep-distractors"):
        haystack(pool, asked, 2, 1, Layout.KEEP_OWN)


def test_the_published_layout_is_one_shuffle_for_all_questions():
    """``random.Random(4)`` puts the 10 paragraphs of any question at these places of 200 documents, counted from 1."""
    pool = plain_pool(400)
    for first in (0, 90):
        own = range(first, first + 10)
        asked = PoolQuestion(f"q{first}", "Who?", ("Ann Lee",), (own[3],), tuple(own), ())
        chosen = haystack(pool, asked, 200, 1, Layout.PUBLISHED)
        assert sorted(chosen.index(n) + 1 for n in own) == [7, 10, 17, 81, 88, 96, 109, 154, 177, 191]
        shuffled = list(range(200))
        random.Random(4).shuffle(shuffled)
        assert [chosen.index(n) for n in own] == [shuffled.index(k) for k in range(10)]


def test_strangers_of_the_published_layout_may_hold_the_answer():
    pool = pool_of(*(f"T{n}\nAnn Lee {n}" for n in range(20)))
    assert len(haystack(pool, question(), 20, 1, Layout.PUBLISHED)) == 20


@pytest.mark.parametrize(("asked", "documents", "number"), [
    (question(gold=(0, 1, 2)), 2, "3"), (question(answers=("Text 4",)), 40, "39"), (question(), 41, "40"),
])
def test_a_pool_too_small_says_what_there_is(asked, documents, number):
    with pytest.raises(DataError, match=f"question q.*{number}"):
        haystack(plain_pool(40), asked, documents, seed=1)
