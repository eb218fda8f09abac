"""A document has the wanted number of tokens, after few counts; needles stand where a line or a sentence begins."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.ruler.filler import Filler, place
from mem_agent.ruler.length import LengthError, fill, shortest_allowed
from mem_agent.ruler.sample import RulerError
from mem_agent.ruler.tokens import load_tokenizer


@given(
    budget=st.integers(1, 10**6),
    start=st.integers(0, 10**6),
    price=st.floats(0.05, 40),
    bend=st.floats(0.8, 1.2),
)
def test_the_window_is_met_with_few_counts(budget, start, price, bend):
    """A document of ``size`` steps has start + (size / price) ** bend tokens, unless that is too coarse."""
    counted = []

    def count(size):
        counted.append(size)
        return start + int((size / price) ** bend)

    try:
        filled = fill(range, lambda document: count(len(document)), budget)
    except LengthError:
        assert start > budget or shortest_allowed(budget) == budget or price < 1
        return
    assert shortest_allowed(budget) <= filled.tokens <= budget
    assert filled.tokens == count(filled.size)
    assert len(counted) <= 30


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (lambda text: 101 + len(text), "takes at least 101 tokens"),
        (lambda text: 30 * len(text), "can have 90 or 120 tokens with this tokenizer, nothing between"),
    ],
)
def test_what_cannot_be_reached_is_said(count, message):
    with pytest.raises(LengthError, match=message):
        fill(lambda size: "x" * size, count, 100)


def test_looks_at_small_documents_before_the_whole():
    sizes = []
    filled = fill(lambda size: sizes.append(size) or "x" * size, len, 1000)
    assert sizes == [0, 60, 125, 996] and filled.size == 996


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=9), st.lists(st.integers(0, 20)))
def test_a_filler_is_the_beginning_of_one_text(pieces, sizes):
    filler = Filler(itertools.cycle(pieces), "|")
    whole = "|".join(pieces * 30)
    assert [filler.text(size) for size in sizes] == [whole[:size] for size in sizes]


# filler, depths, joint, result; N1, N2 are the statements
PLACES = [
    ("a b\nc d\ne f", [0.0, 1.0], "\n", "N1\na b\nc d\nN2\ne f"),
    ("a b\nc d\ne f", [0.5, 0.5], "\n", "a b\nN1\nN2\nc d\ne f"),
    ("Aa. Bb? Cc! Dd", [0.0, 1.0], " ", "N1 Aa. Bb? Cc! N2 Dd"),
    ("Aa. Bb? Cc! Dd", [0.3, 0.6], " ", "Aa. N1 Bb? N2 Cc! Dd"),
    ("no ends here", [0.5, 1.0], " ", "no N1 ends N2 here"),
    ("", [0.1, 0.9], "\n", "N1\nN2\n"),
]


@pytest.mark.parametrize(("filler", "depths", "joint", "result"), PLACES)
def test_statements_stand_at_beginnings(filler, depths, joint, result):
    assert place(filler, ["N1", "N2"], depths, joint) == result


def test_statements_are_placed_from_front_to_back():
    with pytest.raises(AssertionError, match="out of order"):
        place("a b c", ["N1", "N2"], [0.9, 0.1], " ")


def test_a_folder_without_tokenizer_is_named(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RulerError, match=str(folder)):
            load_tokenizer(folder)
