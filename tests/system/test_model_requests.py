"""What a model's settings ask a library for beside the model is refused; what published models say is not."""

import json

import pytest

from mem_agent.agents.embedding import Embedding
from mem_agent.system.errors import ConfigError
from mem_agent.system.model_requests import refuse_requests

PUBLISHED = [
    {"_name_or_path": "nreimers/MiniLM-L6-H384-uncased", "model_type": "bert", "auto_map": {"AutoModel": "a--b.C"}},
    {"attn_implementation": "sdpa", "text_config": {"_attn_implementation": None, "torch_dtype": "bfloat16"}},
    {"_attn_implementation": {"text_config": "eager", "vision_config": "flash_attention_2"}}, {"rope": [1e400]},
    {"quantization_config": None}, [], 3, "x",
]
ASKING = [
    {"attn_implementation": "somebody/kernel"}, {"text_config": {"_attn_implementation": "a/b@main:c"}},
    {"_attn_implementation": {"text_config": "a/b"}}, {"attn_implementation": ["paged|a/b"]},
    {"experts_implementation": "a/b"}, {"quantization_config": {"quant_method": "mxfp4"}},
    {"vision_config": [{"transformers_weights": "x.bin"}]},
    {"audio_tokenizer": {"audio_tokenizer_name_or_path": "a/b"}},
    {"vision_config": {"model_type": "timm_backbone", "backbone": "hf-hub:a/b"}},
]


@pytest.mark.parametrize("settings", PUBLISHED)
def test_what_models_say_is_taken(tmp_path, settings):
    (tmp_path / "config.json").write_text(json.dumps(settings))
    refuse_requests(tmp_path)


@pytest.mark.parametrize("settings", ASKING)
@pytest.mark.parametrize("file", ["config.json", "processor_config.json"])
def test_what_asks_for_more_is_one_line(tmp_path, settings, file):
    (tmp_path / file).write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=rf"{file}: .* asks for ") as error:
        refuse_requests(tmp_path)
    assert "\n" not in str(error.value)


def test_a_part_of_another_model_is_told(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/x"}')
    with pytest.raises(ConfigError, match=r"adapter_config\.json names another model"):
        Embedding(tmp_path)
