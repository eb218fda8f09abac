"""The longest run of words that two texts share is difflib's."""

from difflib import Match, SequenceMatcher

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mem_agent.traces.longest_match import longest_match

WORDS = st.lists(st.sampled_from(["a", "b", " ", "c"]), max_size=40)


@given(WORDS, WORDS)
@example(list("abcbc"), list("bcab"))  # two runs of two words: the first in old
@example(list("bc"), list("abcabc"))  # twice in new: the first there
def test_it_is_difflibs(old, new):
    assert longest_match(old, new) == SequenceMatcher(None, old, new, autojunk=False).find_longest_match()


@pytest.mark.parametrize("old,new", [([], []), (["a"], []), ([], ["a"]), (["a"], ["b"])])
def test_of_texts_without_a_common_word_it_is_empty(old, new):
    assert longest_match(old, new) == Match(0, 0, 0)
