"""Pieces joined are the reply, one for each token, whatever the tokenizer does with single tokens."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.traces.pieces import pieces_of

VOCABULARY = Vocabulary(make_tokenizer())
BACKEND = VOCABULARY.tokenizer.backend_tokenizer
WORDS = {"▁red": 0, "▁key": 1, "s": 2, "<0xC3>": 3, "<0xBC>": 4, "▁": 5, "<unk>": 6}


def sentencepiece():
    """A decoder that drops the blank of the first word, as Llama 2's."""
    model = Tokenizer(models.BPE(vocab=WORDS, merges=[], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    model.decoder = decoders.Sequence(steps)
    return model


@given(st.text(max_size=40))
def test_the_pieces_of_any_text_are_that_text(text):
    ids = VOCABULARY.encode_text(text)
    whole = VOCABULARY.reply_text(ids)
    pieces = pieces_of(BACKEND, ids, whole)
    assert "".join(pieces) == whole and len(pieces) == len(ids)


@given(st.lists(st.integers(0, VOCABULARY.size + 5), max_size=60))
def test_so_are_those_of_any_tokens(ids):
    """Halves of characters, control tokens and padding of the vocabulary included."""
    whole = VOCABULARY.reply_text(ids)
    pieces = pieces_of(BACKEND, ids, whole)
    assert "".join(pieces) == whole and len(pieces) == len(ids)


@given(st.lists(st.integers(0, 6), max_size=80))
def test_and_where_single_tokens_decode_to_something_else(ids):
    model = sentencepiece()
    assume("\ufffd" not in model.decode(ids))
    pieces = pieces_of(model, ids, model.decode(ids))
    assert "".join(pieces) == model.decode(ids) and len(pieces) == len(ids)


@pytest.mark.parametrize("ids,pieces", [
    ([0, 1, 2, 1], ("red", " key", "s", " key")),
    ([0, 5, 3, 4, 2], ("red", " ", "", "ü", "s")),
], ids=["blanks", "characters"])
def test_a_blank_stands_with_its_word_and_a_character_with_its_last_token(ids, pieces):
    assert pieces_of(sentencepiece(), ids, sentencepiece().decode(ids)) == pieces


def test_a_character_of_several_tokens_stands_with_the_last_one():
    ids = VOCABULARY.encode_text("Zürich 🗝")
    pieces = pieces_of(BACKEND, ids, "Zürich 🗝")
    assert [piece for piece in pieces if piece][-1] == "🗝" and pieces.index("ü") == 2
