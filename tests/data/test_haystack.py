"""Gold documents among distractors: who gets in, and that the order tells nothing."""

import random
from collections import Counter

import pytest

from mem_agent.data.haystack import HaystackError, haystack
from mem_agent.data.options import Layout
from mem_agent.data.pool import Pool, PoolQuestion
from mem_agent.data.questions import assemble
from mem_agent.rewards.answers import AnswerKind, kind_of

KINDS = [
    ("yes", AnswerKind.CHOICE), ("No.", AnswerKind.CHOICE), ("noanswer", AnswerKind.CHOICE),
    ("1,984", AnswerKind.NUMBER), ("seven", AnswerKind.NUMBER), ("U2", AnswerKind.NUMBER),
    ("The A", AnswerKind.NUMBER),
    ("Ann Lee", AnswerKind.OPEN), ("Nowhere", AnswerKind.OPEN), ("14 May 1969", AnswerKind.OPEN),
]


@pytest.mark.parametrize(("answer", "kind"), KINDS)
def test_kinds_of_answers(answer, kind):
    assert kind_of(answer) is kind


def pool_of(*texts):
    pool = Pool()
    for text in texts:
        pool.add(text)
    return pool


def plain_pool(size):
    return pool_of(*(f"Title {n}\nText {n}." for n in range(size)))


def question(answers=("Ann Lee",), gold=(0,), own=(), name="q", paragraphs=()):
    return PoolQuestion(name, "Who?", tuple(answers), tuple(gold), tuple(own), (), tuple(paragraphs))


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
        lines = assemble(pool.texts[n] for n in chosen).splitlines()
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
    assert any("T" == pool.texts[n][0] for n in chosen) is not holds


@pytest.mark.parametrize(("answer", "text", "holds"), HOLDERS)
def test_nor_one_of_many_answers(answer, text, holds):
    pool = pool_of("Gold\nIt is.", *(f"T{n}\n{text} {n}" for n in range(20)), *(f"U{n}\nClean {n}" for n in range(20)))
    many = [f"something else {n}" for n in range(40)]
    chosen = haystack(pool, question(answers=(*many, answer, "Clean 7"), own=(1, 2)), 20, seed=1)
    texts = [pool.texts[n] for n in chosen]
    assert any("T" == text[0] for text in texts) is not holds and "U7\nClean 7" not in texts


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
    with pytest.raises(HaystackError, match=r"q has 3 paragraphs of its own \(--keep-distractors\), more than the 2"):
        haystack(pool, asked, 2, 1, Layout.KEEP_OWN)


def test_the_published_layout_is_one_shuffle_for_all_questions():
    """``random.Random(4)`` puts the 10 paragraphs of any question at these places of 200 documents, counted from 1."""
    pool = plain_pool(400)
    for first in (0, 90):
        own = range(first, first + 10)
        asked = question(gold=(own[3],), own=[*own[:3], *own[4:]], paragraphs=own, name=f"q{first}")
        chosen = haystack(pool, asked, 200, 1, Layout.PUBLISHED)
        assert sorted(chosen.index(n) + 1 for n in own) == [7, 10, 17, 81, 88, 96, 109, 154, 177, 191]
        shuffled = list(range(200))
        random.Random(4).shuffle(shuffled)
        assert [chosen.index(n) for n in own] == [shuffled.index(k) for k in range(10)]


def test_strangers_of_the_published_layout_may_hold_the_answer():
    pool = pool_of(*(f"T{n}\nAnn Lee {n}" for n in range(20)))
    assert len(haystack(pool, question(paragraphs=(0,)), 20, 1, Layout.PUBLISHED)) == 20


IMPOSSIBLE = [
    (question(gold=(0, 1, 2)), 2, "question q has 3 gold documents, more than the 2 asked for"),
    (question(answers=("Text 4",)), 40, "of the 40 in the pool only 39 can be used"),
    (question(), 41, "of the 40 in the pool only 40 can be used"),
]


@pytest.mark.parametrize(("asked", "documents", "reason"), IMPOSSIBLE)
def test_a_pool_too_small_is_one_line(asked, documents, reason):
    with pytest.raises(HaystackError, match=reason):
        haystack(plain_pool(40), asked, documents, seed=1)
