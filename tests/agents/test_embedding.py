"""Vectors of texts: length 1, the same in any batch, and nothing of a long text left out."""

import shutil

import numpy as np
import pytest

from mem_agent.agents import embedding
from mem_agent.agents.embedding import Embedding
from mem_agent.config import ConfigError
from mem_agent.evaluation.retrieval import ByMeaning
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

TEXTS = ["Anna has the red key.", "key", "Ben " * 20]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedding")
    make_tiny_model(folder, tied=True)
    make_tokenizer().save_pretrained(folder)
    return folder


def test_vectors_have_length_one_and_do_not_depend_on_their_batch(model):
    together, alone = Embedding(model).embed(TEXTS), Embedding(model, batch=1).embed(TEXTS)
    assert np.allclose(np.linalg.norm(together, axis=1), 1) and np.allclose(together, alone, atol=1e-4)
    assert ByMeaning(Embedding(model)).rank(TEXTS[2], TEXTS, 1) == [2]


def test_a_text_longer_than_the_window_is_the_mean_of_its_windows(model, monkeypatch):
    monkeypatch.setattr(embedding, "WINDOW", 8)
    long = Embedding(model)
    ids = make_tokenizer()(TEXTS[2])["input_ids"]
    assert len(ids) > 16
    parts = [make_tokenizer().decode(ids[start : start + 8]) for start in range(0, len(ids), 8)]
    sums = sum(long._summed([make_tokenizer()(part)["input_ids"]])[0] for part in parts)
    (whole,) = long.embed([TEXTS[2]])
    assert np.allclose(whole, sums / np.linalg.norm(sums), atol=1e-5)
    first, other = long.embed(["Ben " * 20 + "Anna", "Ben " * 20 + "key"])
    assert not np.allclose(first, other, atol=1e-4)  # they differ in the last window alone


def test_an_empty_text_is_like_nothing(model):
    assert not Embedding(model).embed([""]).any()


@pytest.mark.parametrize("file,content", [
    ("config.json", '{"model_type": "qwen2", "hidden_size": "x"}'), ("config.json", "7"), ("tokenizer.json", "{}"),
    ("model.safetensors", "torn"),
])
def test_a_damaged_model_is_one_line(model, tmp_path, file, content):
    folder = tmp_path / "damaged"
    shutil.copytree(model, folder)
    (folder / file).write_text(content)
    with pytest.raises(ConfigError, match="no embedding model can be loaded from it: ") as error:
        Embedding(folder)
    assert "\n" not in str(error.value)


def test_a_vector_without_a_number_is_told(model):
    broken = Embedding(model)
    key = make_tokenizer()("key", add_special_tokens=False)["input_ids"][0]
    broken._model.get_input_embeddings().weight.data[key] = float("nan")
    assert np.isfinite(broken.embed(["gold"])).all()
    with pytest.raises(ConfigError, match="reads no such text: ValueError: a text's vector has what is no number"):
        broken.embed(["gold", "key"])
