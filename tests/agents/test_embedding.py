"""Vectors of texts: length 1, the same in any batch, and nothing of a long text left out."""

import numpy as np
import pytest

from mem_agent.agents.embedding import Embedding
from mem_agent.config import ConfigError
from mem_agent.evaluation.retrieval import ByMeaning
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

TEXTS = ["Anna has the red key.", "key", "Ben " * 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedding")
    make_tiny_model(folder, tied=True)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def model(folder):
    return Embedding(folder)


def test_vectors_have_length_one_and_do_not_depend_on_their_batch(model):
    together, alone = model.embed(TEXTS), np.concatenate([model.embed([text]) for text in TEXTS])
    assert np.allclose(np.linalg.norm(together, axis=1), 1) and np.allclose(together, alone, atol=1e-4)
    assert ByMeaning(model).rank(TEXTS[2], TEXTS, 1) == [2]


def test_a_text_longer_than_the_window_is_the_mean_of_its_windows(model):
    model._window = 8
    first, other = model.embed(["Ben " * 20 + "Anna", "Ben " * 20 + "key"])
    assert not np.allclose(first, other, atol=1e-4)  # they differ in the last window alone


def test_an_empty_text_is_like_nothing(model):
    assert not model.embed([""]).any()


def test_a_damaged_model_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text("7")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        Embedding(tmp_path)
