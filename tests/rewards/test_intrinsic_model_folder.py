"""A sentence-transformers folder of somebody else runs nothing, reads no other model, and is looked at as a whole."""

import json
import os
import shutil

import pytest

from mem_agent.rewards.intrinsic.encoder import WIDEST, SentenceEncoder
from mem_agent.rewards.intrinsic.model_folder import check_model_folder
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

OLD, NEW = "sentence_transformers.models", "sentence_transformers.base.modules"


class _Runs:
    """As a pickle: makes a folder where it is unpickled."""

    def __init__(self, made):
        self.made = str(made)

    def __reduce__(self):
        return os.mkdir, (self.made,)


def write(file, content):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))


def modules(*parts):
    return [{"idx": at, "name": str(at), "path": path, "type": kind} for at, (path, kind) in enumerate(parts)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A Transformer in a folder of its own, as older versions saved one, and its pooling."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("sentences")
    tokenizer = make_tokenizer()
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=16, max_position_embeddings=16)
    BertModel(config).save_pretrained(folder / "0_Transformer")
    tokenizer.save_pretrained(folder / "0_Transformer")
    write(folder / "modules.json", modules(("0_Transformer", f"{OLD}.Transformer"), ("1_Pooling", f"{OLD}.Pooling")))
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True})
    return folder


@pytest.fixture
def model(made, tmp_path):
    return shutil.copytree(made, tmp_path / "model")


def test_weights_that_are_a_program_do_not_run(model, tmp_path, monkeypatch):
    """Whatever the folder says, and if nobody had looked at it."""
    import torch

    part = model / "0_Transformer"
    write(part / "sentence_bert_config.json", {"model_kwargs": {"weights_only": False, "dtype": "auto"}})
    config = json.loads((part / "config.json").read_bytes())
    write(part / "config.json", {key: value for key, value in config.items() if key not in {"dtype", "torch_dtype"}})
    (part / "model.safetensors").unlink()
    torch.save({"x": _Runs(tmp_path / "ran")}, part / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"sentence_bert_config\.json: model_kwargs is .*weights_only"):
        SentenceEncoder("mine", model).encode(["a"])
    monkeypatch.setattr("mem_agent.rewards.intrinsic.encoder.check_model_folder", lambda folder: None)
    with pytest.raises(ConfigError, match="Weights only load failed"):
        SentenceEncoder("mine", model).encode(["a"])
    assert not (tmp_path / "ran").exists()


def test_plain_tensors_of_torch_are_read(model):
    import torch
    from safetensors.torch import load_file

    part = model / "0_Transformer"
    before = SentenceEncoder("mine", model).encode(["key"])
    torch.save(load_file(part / "model.safetensors"), part / "pytorch_model.bin")
    (part / "model.safetensors").unlink()
    assert (SentenceEncoder("mine", model).encode(["key"]) == before).all()


HARMLESS = [
    {"max_seq_length": 8, "do_lower_case": False},
    {"max_seq_length": None, "transformer_task": "feature-extraction", "module_output_name": "token_embeddings",
     "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}},
    {"model_args": {"torch_dtype": "float32", "trust_remote_code": True}, "tokenizer_args": {"padding_side": "right"}},
    {"model_kwargs": {}, "config_kwargs": {"use_cache": False}, "unpad_inputs": False},
]


@pytest.mark.parametrize("settings", HARMLESS)
def test_what_published_models_say_is_taken(model, settings):
    write(model / "0_Transformer" / "sentence_bert_config.json", settings)
    assert SentenceEncoder("mine", model).encode(["key"]).shape == (1, 16)


@pytest.mark.parametrize("settings", [
    *({name: {"weights_only": False}} for name in ("model_args", "model_kwargs", "config_args", "tokenizer_args")),
    {"processor_kwargs": {"tokenizer_file": "/x"}}, {"config_kwargs": {"name_or_path": "a/b"}},
    {"model_kwargs": {"attn_implementation": "somebody/kernel"}}, {"model_kwargs": {"dtype": {"": "float16"}}},
    {"model_kwargs": "x"}, {"tokenizer_name_or_path": "somebody/else"}, {"processor_name": "/x"},
    {"modality_config": {"text": {"method": "push_to_hub", "method_output_name": None}}},
    {"processing_kwargs": {"text": {"padding": "max_length", "max_length": 10**9}}},
    {"query_expansion": {"strategy": "fixed", "length": 10**9}}, {"max_seq_length": "8"}, [],
])
@pytest.mark.parametrize("name", ["sentence_bert_config.json", "sentence_xlm-roberta_config.json"])
def test_other_settings_of_a_transformer_are_refused(model, settings, name):
    write(model / "0_Transformer" / name, settings)
    with pytest.raises(ConfigError, match=r"0_Transformer/sentence_.*_config\.json"):
        check_model_folder(model)


@pytest.mark.parametrize(("kind", "path"), [
    ("torch.nn.Linear", "a"), ("modeling_mine.Mine", "a"), ("sentence_transformers.util.misc.import_from_string", "a"),
    ("sentence_transformers.base.modules.module.torch", "a"), ("sentence_transformers.evaluation.Transformer", "a"),
    (f"{OLD}.Unknown", "a"), (None, "a"), (f"{OLD}.Pooling", "a/b"), (f"{OLD}.Pooling", ".."), (f"{OLD}.Pooling", "/"),
    (f"{OLD}.Pooling", 3), (f"{OLD}.Pooling", "."), (f"{OLD}.Pooling", "0_Transformer"),
])
def test_modules_of_another_kind_or_place_are_refused(model, kind, path):
    write(model / "modules.json", modules(("0_Transformer", f"{OLD}.Transformer"), (path, kind)))
    with pytest.raises(ConfigError, match=r"modules\.json: "):
        check_model_folder(model)


@pytest.mark.parametrize("content", [{}, [1], 3, modules(*((str(at), f"{OLD}.Normalize") for at in range(33)))])
def test_other_lists_of_modules_are_refused(model, content):
    write(model / "modules.json", content)
    with pytest.raises(ConfigError, match=r"no list of modules|more than 32 modules"):
        check_model_folder(model)


def test_all_modules_of_the_library_are_known():
    from sentence_transformers.sentence_transformer import modules as library
    from sentence_transformers.util import import_from_string

    from mem_agent.rewards.intrinsic.model_folder import _KNOWN, _class

    assert set(library.__all__) - _KNOWN == {"Module", "InputModule"}
    for name in sorted(_KNOWN):
        cls = getattr(library, name)
        for known in (f"{OLD}.{name}", f"{cls.__module__}.{name}", f"{library.__name__}.{name}"):
            assert _class("x", known) == name and import_from_string(known) is cls


def test_a_link_is_no_part(model, tmp_path):
    (model / "1_Pooling").rename(tmp_path / "elsewhere")
    (model / "1_Pooling").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="1_Pooling is a link"):
        check_model_folder(model)


def test_routers_are_looked_at_as_well(model):
    write(model / "modules.json", modules(("", f"{NEW}.router.Router")))
    good = {"types": {"0_Transformer": f"{NEW}.transformer.Transformer"}, "structure": {"query": ["0_Transformer"]},
            "parameters": {}}
    write(model / "router_config.json", good)
    check_model_folder(model)
    for bad in ({"types": {"../x": f"{OLD}.Pooling"}}, {"types": {"a": "mine.Mine"}},
                {"structure": {"a": ["b"] * 33}}):
        write(model / "router_config.json", good | bad)
        with pytest.raises(ConfigError, match=r"router_config\.json"):
            check_model_folder(model)
    write(model / "router_config.json", good)
    write(model / "0_Transformer" / "sentence_bert_config.json", {"model_kwargs": {"weights_only": False}})
    with pytest.raises(ConfigError, match="weights_only"):
        check_model_folder(model)


@pytest.mark.parametrize(("kind", "file", "good", "bad"), [
    ("Dense", "config.json", "torch.nn.modules.linear.Identity", "torch.hub.load"),
    ("Dense", "config.json", "mine.Function", "torch.distributed.run.main"),
    ("WordEmbeddings", "wordembedding_config.json", f"{OLD}.tokenizer.WhitespaceTokenizer.WhitespaceTokenizer",
     "sentence_transformers.base.model.torch"),
])
def test_classes_that_a_module_names_are_of_known_kinds(model, kind, file, good, bad):
    write(model / "modules.json", modules(("a", f"{OLD}.{kind}")))
    key = "activation_function" if kind == "Dense" else "tokenizer_class"
    write(model / "a" / file, {key: good})
    check_model_folder(model)
    write(model / "a" / file, {key: bad})
    with pytest.raises(ConfigError, match=f"{key} is '{bad}'"):
        check_model_folder(model)


def test_a_long_text_before_each_text_is_refused(model):
    write(model / "config_sentence_transformers.json", {"prompts": {"query": "a question: ", "none": None}})
    assert SentenceEncoder("mine", model).encode(["key"]).shape == (1, 16)
    write(model / "config_sentence_transformers.json", {"prompts": {"query": "a" * 10**6}})
    with pytest.raises(ConfigError, match="a prompt has more than 4096 letters"):
        check_model_folder(model)


@pytest.mark.parametrize("dims", [0, -20, 1.5, "8", True])
def test_vectors_are_cut_to_a_number_above_0(model, dims):
    write(model / "config_sentence_transformers.json", {"truncate_dim": 8})
    assert SentenceEncoder("mine", model).encode(["key"]).shape == (1, 8)
    write(model / "config_sentence_transformers.json", {"truncate_dim": dims})
    with pytest.raises(ConfigError, match=r"config_sentence_transformers\.json: truncate_dim is "):
        check_model_folder(model)


def test_vectors_without_a_number_are_told_and_reach_nobody(model):
    import torch
    from safetensors.torch import load_file, save_file

    file = model / "0_Transformer" / "model.safetensors"
    tensors = load_file(file)
    key = make_tokenizer()("key", add_special_tokens=False)["input_ids"][0]
    tensors["embeddings.word_embeddings.weight"][key] = torch.nan
    save_file(tensors, file, metadata={"format": "pt"})
    encoder = SentenceEncoder("mine", model)
    assert encoder.encode(["gold"]).shape == (1, 16)
    with pytest.raises(ConfigError, match=r"MEM_IR_MODEL='mine': gives a text a vector with what is no number"):
        encoder.encode(["gold", "key"])


@pytest.mark.parametrize(("dims", "taken"), [(WIDEST, True), (WIDEST + 1, False)])
def test_vectors_are_no_wider_than_what_holds_them(model, dims, taken):
    import torch
    from safetensors.torch import save_file

    write(model / "modules.json", modules(("0_Transformer", f"{OLD}.Transformer"), ("1_Pooling", f"{OLD}.Pooling"),
                                          ("2_Dense", f"{OLD}.Dense")))
    write(model / "2_Dense" / "config.json", {"in_features": 16, "out_features": dims, "bias": False})
    save_file({"linear.weight": torch.ones(dims, 16)}, model / "2_Dense" / "model.safetensors")
    encoder = SentenceEncoder("mine", model)
    if taken:
        assert encoder.encode(["key"]).shape == (1, dims)
    else:
        with pytest.raises(ConfigError, match="its vectors have 8,193 numbers, not 1 to 8,192"):
            encoder.encode(["key"])


@pytest.mark.parametrize("kind", ["CrossEncoder", "SparseEncoder", None, "", []])
def test_a_model_of_another_kind_is_refused_as_its_modules_are_not_what_is_read(model, kind):
    write(model / "config_sentence_transformers.json", {"model_type": "SentenceTransformer"})
    check_model_folder(model)
    write(model / "config_sentence_transformers.json", {"model_type": kind})
    with pytest.raises(ConfigError, match=r"config_sentence_transformers\.json: model_type is "):
        check_model_folder(model)


@pytest.mark.parametrize(("file", "content", "line"), [
    ("config.json", {"num_hidden_layers": 10**8}, "num_hidden_layers"),
    ("config.json", {"quantization_config": {"quant_method": "x"}}, "quantized"),
    ("tokenizer.json", {"model": {"vocab": {"a": 2**31}}}, "the id 2147483648"),
])
def test_each_part_is_looked_at_as_a_model_is(model, file, content, line):
    write(model / "0_Transformer" / file, content)
    with pytest.raises(ConfigError, match=rf"0_Transformer/{file}: .*{line}"):
        SentenceEncoder("mine", model).encode(["a"])


def test_weights_that_are_missing_are_the_same_in_every_process_and_draw_nothing_of_the_callers(model):
    import torch

    part = model / "0_Transformer"
    config = json.loads((part / "config.json").read_bytes())
    write(part / "config.json", config | {"num_hidden_layers": 2})
    before = torch.get_rng_state()
    first = SentenceEncoder("mine", model).encode(["key"])
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(before.sum().item())
    assert (SentenceEncoder("mine", model).encode(["key"]) == first).all()
