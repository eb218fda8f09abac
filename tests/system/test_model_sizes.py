"""A count that no model comes near ends in one line, wherever it lies in config.json and whoever reads the model."""

import json
import re
from pathlib import Path

import pytest

from mem_agent.agents.embedding import Embedding
from mem_agent.checkpoints.bridge import load_hf_config
from mem_agent.checkpoints.hf_model import load_vocabulary, local_folder
from mem_agent.rehearsal.tiny_model import write_tiny_model
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.system.model_sizes import model_config
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

TOO_MANY = {
    "num_hidden_layers": {"num_hidden_layers": 1025},
    "num_labels": {"num_labels": 5_000_000},
    "text_config.num_hidden_layers": {"model_type": "gemma3", "text_config": {"num_hidden_layers": 1_000_000}},
    "vision_config.depth": {"vision_config": {"depth": 1e9}},
    "a.b.num_labels": {"a": {"b": {"num_labels": 5_000_000}}},
    "parts.n_layers": {"parts": [1, {"n_layers": 2000}]},
    "num_nextn_predict_layers": {"num_nextn_predict_layers": 1025},
    "encoder_layers": {"encoder_layers": float("inf")},
    "attention_types": {"model_type": "gpt_neo", "attention_types": [[["global"], 10**9]]},
}
GOOD = [
    {"num_hidden_layers": None}, {"num_labels": 2}, {"rope_theta": 10_000_000, "rope_scaling": {"factor": 4.0}},
    {"text_config": {"num_hidden_layers": 48, "vocab_size": 262_208, "layers_block_type": ["attention"]}},
    {"vision_config": {"depths": [2, 2, 6, 2], "num_attention_heads": [1, 2, 5, 8], "hidden_size": [32, 64]}},
    {"mlp_only_layers": [], "max_window_layers": 28, "out_indices": [-1], "image_token_id": 151_655},
    {"attention_types": [[["global", "local"], 12]], "num_hash_layers": 3, "use_layers": True},
]


def written(folder: Path, content: object) -> Path:
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(("where", "content"), TOO_MANY.items(), ids=TOO_MANY)
def test_a_count_too_high_is_named_with_its_place(tmp_path, where, content):
    with pytest.raises(ConfigError, match=rf"config\.json: {re.escape(where)} is .*, not a number up to \d+$"):
        model_config(written(tmp_path, content))


@pytest.mark.parametrize("content", GOOD)
def test_what_models_say_is_read(tmp_path, content):
    assert model_config(written(tmp_path, content)) == content


@pytest.mark.parametrize("depth,message", [(60, r"config\.json: a\.a\.a"), (400, r"config\.json is nested deeper")])
def test_many_objects_inside_each_other_are_no_recursion(tmp_path, depth, message):
    inside: dict[str, object] = {"num_labels": 10**6}
    for _ in range(depth):
        inside = {"a": inside}
    with pytest.raises(ConfigError, match=message):
        model_config(written(tmp_path, inside))


LOADERS = {
    "the folder of a model": lambda folder: local_folder(str(folder)), "a model": load_vocabulary,
    "RULER": load_tokenizer, "an embedding model": Embedding, "a trainer": load_hf_config,
    "a snapshot of one": lambda folder: SentenceEncoder("x", folder)._model,
    "a rehearsal": lambda folder: write_tiny_model(json.loads((folder / "config.json").read_text()), folder,
                                                   folder / "tiny"),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
@pytest.mark.parametrize("more", [{"num_labels": 2**16 + 1}, {"text_config": {"num_hidden_layers": 2000}}])
def test_a_model_with_such_a_count_is_refused_before_it_is_read(tmp_path, load, more):
    make_tiny_model(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    written(tmp_path, json.loads((tmp_path / "config.json").read_text()) | more)
    with pytest.raises(MemAgentError, match=r"config\.json: .* is \d+, not a number up to"):
        load(tmp_path)


def test_a_part_of_a_sentence_model_is_looked_at_too(tmp_path):
    (tmp_path / "0_Transformer").mkdir()
    written(tmp_path / "0_Transformer", {"num_labels": 5_000_000})
    modules = [{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match=r"0_Transformer/config\.json: num_labels is 5000000"):
        SentenceEncoder("x", tmp_path)._model  # noqa: B018
