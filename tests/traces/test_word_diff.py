"""What changed between two memories, word by word."""

import random
from difflib import SequenceMatcher
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.tests.helpers.cpu_time import at_most
from mem_agent.traces import word_diff as module
from mem_agent.traces.word_diff import _MOST_LOOKS, _WORD, Change, marked, opcodes, shortened, word_diff

TEXT = st.text("ab ,\n東京")


@given(TEXT, TEXT)
def test_pieces_make_up_both_texts(before, after):
    pieces = word_diff(before, after)
    assert "".join(piece.text for piece in pieces if piece.change is not Change.ADDED) == before
    assert "".join(piece.text for piece in pieces if piece.change is not Change.REMOVED) == after
    assert all(piece.text for piece in pieces)


@given(TEXT, TEXT, st.integers(0, 40))
def test_whatever_time_there_is_the_pieces_make_up_both_texts(before, after, looks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_LOOKS", looks)
        test_pieces_make_up_both_texts.hypothesis.inner_test(before, after)


def memories(every):
    """Of 1,800 words, as often as those of a language are; of the second, one in ``every`` is another."""
    drawn = random.Random(every)
    known = [f"w{number}" for number in range(2000)]
    often = [*accumulate(1 / (place + 1) for place in range(len(known)))]
    old = drawn.choices(known, cum_weights=often, k=1800)
    new = [f"new{place}" if drawn.random() < 1 / every else word for place, word in enumerate(old)]
    return _WORD.findall(" ".join(old)), _WORD.findall(" ".join(new))


@pytest.mark.parametrize("every", [10, 25])
def test_of_memories_as_there_are_all_is_found_that_difflib_finds(every):
    old, new = memories(every)
    assert opcodes(old, new) == SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


NUMBERED = [f"w{number}" for number in range(30_000)]
HOSTILE = {
    "every other word": (NUMBERED, [word if place % 2 else word + "x" for place, word in enumerate(NUMBERED)]),
    "another order": (NUMBERED, random.Random(1).sample(NUMBERED, len(NUMBERED))),
    "blanks between": ([" ", "x"] * 15_000, [" ", "y"] * 15_000),
    "two words": (random.Random(1).choices("ab", k=30_000), random.Random(2).choices("ab", k=30_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_how_many_words_are_looked_at_has_a_bound(monkeypatch, name):
    seen = []
    found = module.longest_match
    monkeypatch.setattr(module, "longest_match", lambda old, new: seen.append(len(old) + len(new)) or found(old, new))
    opcodes(*HOSTILE[name])
    assert len(seen) > 1 and sum(seen) <= _MOST_LOOKS


def test_long_words_with_marks_between_are_joined_once(monkeypatch):
    """One by one they were copied as often as there are such words: 40 GB."""
    words = 2000
    old, new = ["x" * 10_000, "!"] * words, ["y" * 10_000, "!"] * words
    turns = [("equal" if at % 2 else "replace", at, at + 1, at, at + 1) for at in range(2 * words)]
    monkeypatch.setattr(module, "opcodes", lambda *_: turns)
    with at_most(1):
        found = module._runs(old, new)
    assert [same for same, _, _ in found] == [False, True] and len(found[0][1]) == words * 10_001 - 1


def test_of_texts_too_long_to_compare_their_beginnings_and_ends_stay():
    middle = " ".join(NUMBERED * 6)
    old, new = f"Ann was here. {middle} Bob slept.", f"Ann was here. {middle.upper()} Bob slept."
    assert [(piece.change, piece.text[:14]) for piece in word_diff(old, new)] == [
        (Change.SAME, "Ann was here. "), (Change.REMOVED, "w0 w1 w2 w3 w4"), (Change.ADDED, "W0 W1 W2 W3 W4"),
        (Change.SAME, " Bob slept.")]


@pytest.mark.parametrize(("before", "after", "shown"), [
    ("", "metal silver", "{+metal silver+}"),
    ("Ann: Rome", "Ann: Rome, silver", "Ann: Rome{+, silver+}"),
    ("Ann: Rome", "Ann: Oslo", "Ann: [-Rome-]{+Oslo+}"),
    ("住在東京", "住在京都", "住在[-東-]京{+都+}"),
    ("Ben: nothing is said", "Ben: silver and gold", "Ben: [-nothing is said-]{+silver and gold+}"),
    ("a b c", "x b y", "[-a-]{+x+} b [-c-]{+y+}"),
    ("same", "same", "same"),
    ("gone", "", "[-gone-]"),
])  # fmt: skip
def test_changes_are_marked_by_words(before, after, shown):
    assert marked(word_diff(before, after)) == shown


def test_what_stayed_far_from_a_change_is_left_out():
    before = " ".join(f"w{n}" for n in range(40))
    after = before.replace("w20", "new") + " end"
    assert marked(shortened(word_diff(before, after), around=2)) == (
        "… w18 w19 [-w20-]{+new+} w21 w22 … w38 w39{+ end+}"
    )


@given(TEXT, TEXT, st.integers(1, 3))
def test_shortening_loses_no_change(before, after, around):
    pieces = word_diff(before, after)
    changes = [piece for piece in pieces if piece.change is not Change.SAME]
    assert [piece for piece in shortened(pieces, around) if piece.change is not Change.SAME] == changes
