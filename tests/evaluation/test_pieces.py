"""Long documents are encoded in pieces that nobody can tell from the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents.documents import encode_in_pieces
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

ENCODE = Vocabulary(make_tokenizer()).encode_text
PARTS = ["The", "key", " ", "  ", "\n", "\n\n", "red", "'s", "1871", ".", "é", "<|im_end|>", "你好。", "\t"]


@given(st.lists(st.sampled_from(PARTS), max_size=60).map("".join), st.integers(1, 20))
def test_pieces_joined_are_the_ids_of_the_whole(text, piece):
    assert list(encode_in_pieces(ENCODE, text, piece)) == list(ENCODE(text))


@pytest.mark.parametrize("text,least", [("The key of Anna is red. " * 50, 10), ("你好吗。" * 200, 10)])
def test_a_long_text_really_is_encoded_in_pieces(text, least):
    asked = []

    def encode(part):
        asked.append(part)
        return ENCODE(part)

    assert list(encode_in_pieces(encode, text, 20)) == list(ENCODE(text))
    assert text not in asked and len(asked) > least


def test_a_tokenizer_that_marks_the_start_of_every_text_gets_it_whole():
    def encode(part):
        return [1, *map(ord, part)]

    text = "one two three " * 100
    assert list(encode_in_pieces(encode, text, 50)) == encode(text)
