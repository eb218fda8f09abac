"""What a model's settings ask a library for beside the model is refused; what published models say is not."""

import json

import pytest

from mem_agent.agents.embedding import Embedding
from mem_agent.checkpoints.bridge import load_hf_config
from mem_agent.checkpoints.hf_model import load_vocabulary
from mem_agent.rehearsal.tiny_model import write_tiny_model
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.system.model_requests import refuse_requests
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

PUBLISHED = [
    {"_name_or_path": "nreimers/MiniLM-L6-H384-uncased", "model_type": "bert", "auto_map": {"AutoModel": "a--b.C"}},
    {"attn_implementation": "sdpa", "text_config": {"_attn_implementation": None, "torch_dtype": "bfloat16"}},
    {"_attn_implementation": {"text_config": "eager", "vision_config": "flash_attention_2"}}, {"rope": [1e400]},
    {"quantization_config": None}, [], 3, "x", {"backbone": None, "backbone_kwargs": {}, "use_timm_backbone": None},
    {"use_timm_backbone": False, "backbone_config": {"model_type": "resnet"}},
]
AT_ONCE = [
    {"model_type": "dpt", "backbone": "a/b", "use_timm_backbone": False}, {"model_type": "detr", "backbone": "x"},
    {"backbone": "hf-hub:a/b", "use_timm_backbone": True}, {"model_type": "detr", "use_timm_backbone": False},
    {"model_type": "detr", "backbone_kwargs": {"a": 1}}, {"model_type": "edgetam_vision_model"},
    {"model_type": "llava", "vision_config": {"model_type": "maskformer", "backbone": "a/b"}},
    {"model_type": "rag", "question_encoder": {}}, {"model_type": "bert", "tokenizer_class": "RagTokenizer"},
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


READERS = {
    "embedding": Embedding, "tokenizer": load_vocabulary, "shapes": load_hf_config, "a task's": load_tokenizer,
    "sentences": lambda folder: SentenceEncoder("mine", folder).encode(["a"]),
    "small": lambda folder: write_tiny_model(
        json.loads((folder / "config.json").read_bytes()), folder, folder / "small"),
}


@pytest.mark.parametrize("settings", AT_ONCE)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_reader_of_the_settings_asks_the_hub_for_those_of_another_model(tmp_path, settings, read, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.HfApi.repo_exists", lambda *args, **kwargs: asked.append(args))
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(MemAgentError, match=r"config\.json: .* asks for (another model|tokenizers)"):
        read(tmp_path)
    assert not asked


@pytest.mark.parametrize("settings", [{"quantization_config": {"quant_method": "fp8"}},
                                      {"attn_implementation": "somebody/kernel"}])
def test_a_tokenizer_is_read_of_a_model_whose_weights_are_not(tmp_path, settings):
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", **settings}))
    (tmp_path / "adapter_config.json").write_text("{}")
    assert load_vocabulary(tmp_path).encode_text("key")


@pytest.mark.parametrize(("index", "part"), [
    ("model.safetensors.index.json", "model-00001-of-00002.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"),
])
def test_weights_are_read_from_the_folder_alone(tmp_path, index, part):
    def write(file):
        (tmp_path / index).write_text(json.dumps({"metadata": {}, "weight_map": {"a": part, "b": file}}))

    for good in (part, part.replace("00001-of", "00002-of")):
        write(good)
        refuse_requests(tmp_path)
    for bad in (f"/x/{part}", f"../{part}", f"a/{part}", f"./{part}", "training_args.bin", "x.pt", "", 3, None):
        write(bad)
        with pytest.raises(ConfigError, match=rf"{index} names .*, which is no part of a model beside it"):
            refuse_requests(tmp_path)


def test_a_part_of_another_model_is_told(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "/x"}')
    with pytest.raises(ConfigError, match=r"adapter_config\.json names another model"):
        Embedding(tmp_path)
