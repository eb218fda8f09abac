"""A model is never given more tokens than it tells apart, nor an id that it has no vector for."""

import json

import numpy as np
import pytest
from tokenizers import Tokenizer

from mem_agent.agents.embedding import Embedding
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.system.errors import ConfigError
from mem_agent.system.model_fit import positions_of
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

READERS = {
    "embedding": lambda folder: Embedding(folder).embed,
    "sentences": lambda folder: SentenceEncoder("mine", folder).encode,
    "sentences, so many": lambda folder: SentenceEncoder("mine", folder, length=400).encode,
}


def save(folder, kind="Bert", rows=None, **settings):
    import transformers

    tokenizer = make_tokenizer()
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=rows or len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16, **settings)
    model = getattr(transformers, f"{kind}Model")(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    said = json.loads(path.read_bytes())
    said.pop("model_max_length", None)
    path.write_text(json.dumps(said))
    return model


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(("kind", "settings", "positions"), [("Bert", {}, 16), ("Roberta", {"pad_token_id": 1}, 14)])
def test_a_long_text_is_read_as_far_as_the_model_goes(tmp_path, reader, kind, settings, positions):
    assert positions_of(save(tmp_path, kind, **settings)) == positions
    assert np.isfinite(reader(tmp_path)(["a b c " * 300, "key"])).all()


def test_a_longer_text_than_the_model_reads_does_not_become_one(tmp_path):
    """Where the folder says more than the model has."""
    save(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 16}')
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 1000000}')
    assert np.isfinite(SentenceEncoder("mine", tmp_path).encode(["a b c " * 300])).all()


@pytest.mark.parametrize("length", [None, 400])
@pytest.mark.parametrize("routes", ["tt", "ts", "st"])
def test_each_route_of_a_router_reads_as_far_as_it_goes(tmp_path, routes, length):
    """Of Transformers and of static embeddings, which are the mean of all tokens and have no end."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    save(tmp_path / "part")
    tokenizer = Tokenizer.from_file(str(tmp_path / "part" / "tokenizer.json"))
    made = {"t": lambda: [modules.Transformer(str(tmp_path / "part")), modules.Pooling(16)],
            "s": lambda: [modules.StaticEmbedding(tokenizer, embedding_dim=16)]}
    router = modules.Router.for_query_document(made[routes[0]](), made[routes[1]]())
    SentenceTransformer(modules=[router], device="cpu").save(str(tmp_path / "router"))
    reader = SentenceEncoder("mine", tmp_path / "router", length=length)
    assert np.isfinite(reader.encode(["a b c " * 300, "key"])).all()
    parts = [part for part in reader._model.modules() if isinstance(part, modules.Transformer)]
    assert [part.max_seq_length for part in parts] == [16] * routes.count("t")
    SentenceTransformer(modules=made["s"](), device="cpu").save(str(tmp_path / "static"))
    assert SentenceEncoder("mine", tmp_path / "static", length=length).encode(["key " * 900]).shape == (1, 16)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_an_id_without_a_vector_is_told_when_it_is_loaded(tmp_path, reader):
    save(tmp_path, rows=len(make_tokenizer()) - 1)
    with pytest.raises(ConfigError, match=r"loaded from.*its tokenizer has .* as \d+, its model has \d+ tokens"):
        reader(tmp_path)(["key"])


@pytest.mark.parametrize("reader", [READERS["embedding"], READERS["sentences"]])
def test_what_a_model_ends_with_is_one_line(tmp_path, reader, monkeypatch):
    save(tmp_path)
    monkeypatch.setattr("mem_agent.agents.embedding.positions_of", lambda model: 500)
    monkeypatch.setattr("mem_agent.rewards.intrinsic.encoder.positions_of", lambda model: 500)
    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.model_max_length", 500, raising=False)
    read = reader(tmp_path)
    if getattr(read.__self__, "_length", 0) is None:
        read.__self__._model.max_seq_length = 500
    with pytest.raises(ConfigError, match=r"reads no such text: \w+Error: ") as told:
        read(["a b c " * 300])
    assert "\n" not in str(told.value)


def test_positions_are_those_that_a_model_says():
    class Config:
        max_position_embeddings = -1

    class Model:
        config = Config()

    assert positions_of(Model()) is None and positions_of(object()) is None
