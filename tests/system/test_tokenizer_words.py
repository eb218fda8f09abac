"""Words and tokens that a model reads or writes again and again are bounded; those of models are read."""

import pytest

from mem_agent.system.errors import ConfigError
from mem_agent.system.tokenizer_growth import check_growth
from mem_agent.system.tokenizer_ids import check_tokenizer
from mem_agent.system.tokenizer_parts import GrowsTooMuch
from mem_agent.system.tokenizer_words import LONGEST_AFFIX, LONGEST_WORD

LONG = "a" * (LONGEST_WORD + 1)
OF_MODELS = [
    {"type": "WordPiece", "max_input_chars_per_word": 100, "continuing_subword_prefix": "##", "unk_token": "[UNK]"},
    {"type": "WordPiece", "max_input_chars_per_word": LONGEST_WORD}, {"type": "BPE", "end_of_word_suffix": "</w>"},
    {"type": "BPE", "dropout": None, "unk_token": None, "vocab": {" " * 128: 0, "a" * LONGEST_WORD: 1}},
    {"type": "BPE", "dropout": 0.0}, {"type": "Unigram", "vocab": [["a" * LONGEST_WORD, -1.0], [], 3, [4], None]},
]
REFUSED = [
    ({"max_input_chars_per_word": 10**9}, "max_input_chars_per_word is 1000000000, more than 1024"),
    ({"type": "Unigram", "vocab": [["a", -1.0], [LONG, -1.0]]}, "a token of its vocab has more than 1024 letters"),
    ({"type": "BPE", "vocab": {"a": 0, LONG: 1}}, "a token of its vocab has more than 1024 letters"),
    ({"type": "WordLevel", "vocab": {LONG: 0}}, "a token of its vocab has more than 1024 letters"),
    *(({name: "a" * (LONGEST_AFFIX + 1)}, f"{name} has more than 128 letters")
      for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
    *(({"type": "BPE", "dropout": share}, "dropout is .*: ids are left to chance")
      for share in (0.1, 1, 1e-9, "x", [])),
]


@pytest.mark.parametrize("model", OF_MODELS)
def test_models_are_read(model):
    check_growth({"model": model, "added_tokens": [{"content": "<|fim_prefix|>"}, {"content": "a" * LONGEST_WORD}, 3]})


@pytest.mark.parametrize(("model", "line"), REFUSED)
def test_what_is_longer_than_models_have_is_refused(model, line):
    with pytest.raises(GrowsTooMuch, match=line):
        check_growth({"model": model})


def test_added_tokens_are_bounded():
    with pytest.raises(GrowsTooMuch, match="a token of added_tokens has more than 1024 letters"):
        check_growth({"added_tokens": [{"content": "a"}, {"content": LONG}]})


@pytest.mark.parametrize(("file", "content"), [
    ("vocab.json", f'{{"{LONG}": 1}}'), ("added_tokens.json", f'{{"a": 0, "{LONG}": 1}}'),
    ("tokenizer_config.json", f'{{"unk_token": "{LONG}"}}'),
    ("special_tokens_map.json", f'{{"bos_token": ["{LONG}"]}}'),
    ("tokenizer_config.json", f'{{"added_tokens_decoder": {{"1": {{"content": "{LONG}"}}}}}}'),
    ("tokenizer_config.json", f'{{"extra_special_tokens": ["a", {{"content": "{LONG}"}}]}}'),
])
def test_so_are_those_of_other_files(tmp_path, file, content):
    (tmp_path / file).write_text(content)
    with pytest.raises(ConfigError, match=rf"{file}: a token of .* has more than 1024 letters"):
        check_tokenizer(tmp_path)
