"""What changed between two memories, word by word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.asking.word_diff import Change, marked, shortened, word_diff

TEXT = st.text("ab ,\n東京")


@given(TEXT, TEXT)
def test_pieces_make_up_both_texts(before, after):
    pieces = word_diff(before, after)
    old = "".join(piece.text for piece in pieces if piece.change is not Change.ADDED)
    assert "".join(old.split()) == "".join(before.split())
    assert "".join(piece.text for piece in pieces if piece.change is not Change.REMOVED) == after
    assert all(piece.text for piece in pieces)


@pytest.mark.parametrize(("before", "after", "shown"), [
    ("", "metal silver", "{+metal silver+}"),
    ("Ann: Rome", "Ann: Rome, silver", "Ann: Rome{+, silver+}"),
    ("Ann: Rome", "Ann: Oslo", "Ann: [-Rome-]{+Oslo+}"),
    ("住在東京", "住在京都", "住在[-東-]京{+都+}"),
    ("Ben: nothing is said", "Ben: silver and gold", "Ben: [-nothing is said-]{+silver and gold+}"),
    ("a b c", "x b y", "[-a-] {+x+} b [-c-]{+y+}"),
    ("gone", "", "[-gone-]"),
])  # fmt: skip
def test_changes_are_marked_by_words(before, after, shown):
    assert marked(word_diff(before, after)) == shown


def test_what_stayed_far_from_a_change_is_left_out():
    before = " ".join(f"w{n}" for n in range(40))
    after = before.replace("w20", "new") + " end"
    assert marked(shortened(word_diff(before, after), around=2)) == (
        "… w18 w19 [-w20-] {+new+} w21 w22 … w38 w39 {+end+}"
    )
