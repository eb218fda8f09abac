"""The mean of a long text's windows."""

import numpy as np
import pytest

from mem_agent.sifter.stores.windows import WindowEncoder
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


class Recording:
    """[0.6, 0.8] for what begins with an a, else [0.8, -0.6]."""

    name, fingerprint = "model", "abc-12"

    def __init__(self):
        self.seen = []

    def encode(self, texts):
        self.seen += texts
        return np.array([[0.6, 0.8] if text.startswith("a") else [0.8, -0.6] for text in texts], np.float32)


@pytest.mark.parametrize("text, most, pieces", [
    ("a" * 10, 3, ["a" * 10]), ("", 3, [""]), ("a" * 11, 3, ["a" * 10, "a"]),
    ("a" * 10 + "b" * 10 + "c" * 5, 3, ["a" * 10, "b" * 10, "c" * 5]),
    ("a" * 10 + "b" * 10 + "c" * 5, 2, ["a" * 10, "b" * 10]), ("a" * 20, 2, ["a" * 10, "a" * 10]),
])
def test_windows_follow_each_other_up_to_the_last_allowed(text, most, pieces):
    model = Recording()
    vectors = WindowEncoder(model, letters(), 12, most).encode(["a", text, "b"])
    assert model.seen == ["a", *pieces, "b"]
    mean = np.mean([[0.6, 0.8] if piece.startswith("a") else [0.8, -0.6] for piece in pieces], axis=0)
    assert vectors == pytest.approx(np.array([[0.6, 0.8], mean / np.linalg.norm(mean), [0.8, -0.6]]), abs=1e-6)


def test_its_vectors_are_no_other_windows_vectors():
    names = {WindowEncoder(Recording(), letters(), length, most).fingerprint
             for length, most in ((12, 2), (12, 3), (13, 2))}
    assert len(names) == 3 and Recording.fingerprint not in names


def letters():
    """A tokenizer of one token a letter."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({letter: n for n, letter in enumerate("abc")}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return tokenizer


def test_chinese_is_cut_between_letters():
    model = Recording()
    text = "我昨天去了公园散步。" * 5
    WindowEncoder(model, make_tokenizer().backend_tokenizer, 22, 50).encode([text])
    assert "".join(model.seen) == text and len(model.seen) > 3
