"""An id that no vocabulary comes near ends in one line, before a library takes memory for all ids below it."""

import json

import pytest

from mem_agent.agents.embedding import Embedding
from mem_agent.checkpoints.hf_model import load_vocabulary
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.sifter.stores.embedding_store import _tokenizer
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.system.tokenizer_ids import HIGHEST, MOST_SPECIAL, check_tokenizer
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

FILES = {
    "tokenizer.json": [{"model": {"vocab": {"a": None}}}, {"added_tokens": [{"id": None, "content": "a"}]}],
    "tokenizer.4.0.0.json": [{"model": {"vocab": {"a": None}}}],
    "vocab.json": [{"a": None}], "added_tokens.json": [{"a": None}],
    "tekken_v3.json": [{"vocab": [{"rank": None}]}, {"special_tokens": [{"rank": None}]}],
}
FOREIGN = [b"", b"{", b"[]", b"1", b'{"model": []}', b'{"model": {"vocab": [["a", 0.5]]}}',
           b'{"added_tokens": {"a": 1}}', b'{"added_tokens": ["a", {"id": "b"}]}', b'{"added_tokens_decoder": ["x"]}',
           b"YQ== 99999999\nx", b"YQ== x", b"[" * 900]


def with_id(form, number):
    return json.loads(json.dumps(form).replace("null", str(number)))


@pytest.mark.parametrize(("name", "form"), [(name, form) for name, forms in FILES.items() for form in forms])
def test_an_id_too_high_is_named_with_its_file(tmp_path, name, form):
    for good in (0, HIGHEST):
        (tmp_path / name).write_text(json.dumps(with_id(form, good)))
        check_tokenizer(tmp_path)
    for bad in (HIGHEST + 1, 2**31, -1, 1e300):
        (tmp_path / name).write_text(json.dumps(with_id(form, bad)))
        with pytest.raises(ConfigError, match=rf"{name}: a token has the id .*, not one up to {HIGHEST}"):
            check_tokenizer(tmp_path)


@pytest.mark.parametrize("key", [str(HIGHEST + 1), "9" * 5000])
def test_an_added_token_by_its_id(tmp_path, key):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {key: {"content": "a"}}}))
    with pytest.raises(ConfigError, match="a token has the id"):
        check_tokenizer(tmp_path)


@pytest.mark.parametrize("content", FOREIGN)
def test_other_files_are_told_by_who_reads_them(tmp_path, content):
    for name in (*FILES, "tokenizer.model"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "tokenizer").mkdir()
    check_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.model", "tiktoken.model", "qwen.tiktoken"])
def test_a_rank_of_tiktoken(tmp_path, name):
    (tmp_path / name).write_text("YQ== 0\n\nYg== 2_147_483_648\n")
    with pytest.raises(ConfigError, match=rf"{name}: a token has the id 2147483648"):
        check_tokenizer(tmp_path)


def test_what_is_nested_too_deep_to_be_looked_at_is_refused(tmp_path):
    """The tokenizers library reads up to 128 levels."""
    deep = "[" * 80 + "]" * 80
    (tmp_path / "tokenizer.json").write_text(f'{{"x": {deep}, "model": {{"vocab": {{"a": 4294967295}}}}}}')
    with pytest.raises(ConfigError, match=r"tokenizer\.json: nested deeper than 64"):
        check_tokenizer(tmp_path)


LOADERS = {
    "a model": load_vocabulary, "RULER": load_tokenizer, "an embedding model": Embedding,
    "a snapshot of one": lambda folder: SentenceEncoder("x", folder)._model,
    "a store of embeddings": lambda folder: _tokenizer(folder / "tokenizer.json"),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_a_tokenizer_with_such_an_id_is_refused_before_it_is_read(tmp_path, load):
    make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    read = json.loads(path.read_bytes())
    read["model"]["vocab"]["zz"] = 2**31
    load_vocabulary(tmp_path)
    path.write_text(json.dumps(read))
    with pytest.raises(MemAgentError, match=r"tokenizer\.json: a token has the id 2147483648"):
        load(tmp_path)


OF_MODELS = {
    "tokenizer_config.json": [
        {"tokenizer_file": "/home/somebody/tokenizer.json", "special_tokens_map_file": "/x/special_tokens_map.json"},
        {"fast_tokenizer_files": ["tokenizer.json", "tokenizer.4.0.0.json"], "init_inputs": [], "vocab_file": None,
         "tokenizer_class": "BertJapaneseTokenizer", "mecab_kwargs": {"mecab_dic": "unidic_lite"}},
        {"name_or_path": "nreimers/MiniLM", "extra_special_tokens": {"image_token": "<image>"}, "vocab_size": 3},
        {"additional_special_tokens": [f"<extra_id_{number}>" for number in range(1024)]},
    ],
    "special_tokens_map.json": [
        {"bos_token": {"content": "<s>", "lstrip": False}, "unk_token": "<unk>", "additional_special_tokens": ["<a>"]},
    ],
}
ELSEWHERE = [
    {"vocab": {"a": 2**31}}, {"merges": []}, {"vocab_file": "/x"}, {"merges_file": "x"}, {"tokenizer_object": {}},
    {"fast_tokenizer_files": ["../tokenizer.1.json"]}, {"fast_tokenizer_files": ["sub/tokenizer.1.json"]},
    {"fast_tokenizer_files": ["tokenizer.1+tekken.json"]}, {"fast_tokenizer_files": ["my.tokenizer.1.json"]},
    {"fast_tokenizer_files": "tokenizer.x.json"}, {"fast_tokenizer_files": [3]}, {"init_inputs": [{"a": 1}]},
    {"init_inputs": "/x"}, {"tokenizer_class": "RagTokenizer"}, {"mecab_kwargs": {"mecab_option": "-r /x"}},
    {"sudachi_kwargs": {"sudachi_config_path": "/x"}}, {"sudachi_kwargs": {"sudachi_resource_dir": "/x"}},
]


@pytest.mark.parametrize(("name", "settings"), [(name, said) for name, each in OF_MODELS.items() for said in each])
def test_settings_of_models_are_taken(tmp_path, name, settings):
    (tmp_path / name).write_text(json.dumps(settings))
    check_tokenizer(tmp_path)


@pytest.mark.parametrize("settings", ELSEWHERE)
@pytest.mark.parametrize("name", OF_MODELS)
def test_a_vocabulary_elsewhere_is_refused(tmp_path, name, settings):
    (tmp_path / name).write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=rf"{name}: {next(iter(settings))} (is|has) "):
        check_tokenizer(tmp_path)


@pytest.mark.parametrize("settings", [{"tokenizer_file": "/x"}, {"name_or_path": "a/b"}, {"extra_ids": 10**9},
                                      {"is_local": False}])
def test_special_tokens_are_no_settings(tmp_path, settings):
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=rf"special_tokens_map\.json: {next(iter(settings))} is "):
        check_tokenizer(tmp_path)


@pytest.mark.parametrize("many", [
    {"extra_special_tokens": [{"content": f"<{at}>"} for at in range(MOST_SPECIAL + 1)]},
    {"additional_special_tokens": [f"<{at}>" for at in range(MOST_SPECIAL + 1)]},
    {"extra_special_tokens": {f"{at}": f"<{at}>" for at in range(MOST_SPECIAL + 1)}},
    {f"x{at}_token": f"<{at}>" for at in range(MOST_SPECIAL + 1)},
], ids=["extra", "additional", "by name", "settings"])
@pytest.mark.parametrize("name", OF_MODELS)
def test_more_special_tokens_than_models_have_are_refused(tmp_path, name, many):
    """Transformers compares each with all before it: 20,000 took a minute."""
    (tmp_path / name).write_text(json.dumps(many))
    with pytest.raises(ConfigError, match=rf"{name}: has 2049 special tokens, more than 2048"):
        check_tokenizer(tmp_path)


@pytest.mark.parametrize(("name", "key"), [("tokenizer_config.json", "tokenizer_file"),
                                           ("tokenizer_config.json", "special_tokens_map_file")])
def test_where_a_tokenizer_lay_when_it_was_saved_is_not_read(tmp_path, name, key):
    """So that these may be left alone: transformers puts the folder's own in their place, also where it has none."""
    make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / name
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: str(tmp_path / "elsewhere.json")}))
    (tmp_path / "elsewhere.json").write_text("neither tokenizer nor map")
    assert load_vocabulary(tmp_path).encode_text("key")
    (tmp_path / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    with pytest.raises(ConfigError, match="cannot be used"):
        load_vocabulary(tmp_path)


@pytest.mark.parametrize("odd", ["NaN", "-Infinity", r'"\ud800"'])
def test_what_python_alone_takes_for_json_is_looked_at_too(tmp_path, odd):
    (tmp_path / "special_tokens_map.json").write_text(f'{{"x": {odd}, "tokenizer_file": "/x"}}')
    with pytest.raises(ConfigError, match="tokenizer_file is '/x'"):
        check_tokenizer(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(f'{{"x": {odd}, "y": {"[" * 80}{"]" * 80}}}')
    with pytest.raises(ConfigError, match="nested deeper than 64"):
        check_tokenizer(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text(f'{{"x": {odd}, "y": {"[" * 10**5}{"]" * 10**5}}}')
    with pytest.raises(ConfigError, match="nested deeper than 64"):
        check_tokenizer(tmp_path)
