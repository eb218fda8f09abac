"""Rules that make a text longer and longer end in one line before a text is given to them; those of models do not."""

import json

import pytest

from mem_agent.checkpoints.hf_model import load_vocabulary
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.sifter.stores.embedding_store import _tokenizer
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.system.tokenizer_growth import LONGER, GrowsTooMuch, check_growth
from mem_agent.system.tokenizer_ids import MOST_MADE, check_tokenizer
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


def sequence(*rules):
    return {"type": "Sequence", "normalizers": list(rules)}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


DOUBLE, SPLIT = replace("a", "aa"), {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"}
NFKC, LOWER, CHARS = {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Precompiled", "precompiled_charsmap": ""}
BLANK, RUNS = replace(" ", "▁"), replace(r" {2,}", "▁", "Regex")
OF_MODELS = {
    "llama": sequence({"type": "Prepend", "prepend": "▁"}, BLANK),
    "clip": sequence({"type": "NFC"}, replace(r"\s+", " ", "Regex"), LOWER),
    "albert": sequence(replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, LOWER,
                       CHARS, RUNS),
    "siglip": sequence(LOWER, replace(r"""[!"\#\$%\&'\(\)\*\+,\-\.:;=\?@\[\\\]\^_`\{\|\}\~]""", "", "Regex"),
                       replace(r"\s+", " ", "Regex"), {"type": "Strip"}),
    "t5": sequence(CHARS, RUNS), "a gemma": BLANK, "none": None,
    "many letters": sequence(*[replace(letter, "x") for letter in "abcdefgh" * 500]),
    "many classes": sequence(*[replace(found, " ", "Regex") for found in (r"\s+", "[ab]{1,3}", r"\n", r"\p{P}+", "x+y")
                               * 100]),
}
TOO_LONG = {
    "double": sequence(*[DOUBLE] * 11), "at once": replace("a", "a" * (LONGER + 1)),
    "inside": sequence(*[sequence(DOUBLE, sequence(DOUBLE))] * 6),
    "before nothing": sequence(*[replace("", "b")] * 11),
    "found nothing": sequence(*[replace(found, "b", "Regex") for found in (
        "a*", "(?=a)", r"a\K", "a|", "[a]?", "a{0,1}", r"\b", "^", "()", "$", "a{,2}")]),
    "before all": sequence(*[{"type": "Prepend", "prepend": "abc"}] * 6),
    "letters apart": sequence(*[NFKC, replace("b", "ﷺ")] * 7), "small letters": sequence(*[LOWER] * 7),
}


@pytest.mark.parametrize("rules", OF_MODELS.values(), ids=OF_MODELS)
def test_what_models_do_is_read(rules):
    check_growth({"normalizer": rules, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        SPLIT, {"type": "ByteLevel"}]}, "decoder": {"type": "Sequence", "decoders": [replace("▁", " ")]}})


@pytest.mark.parametrize("rules", TOO_LONG.values(), ids=TOO_LONG)
def test_what_makes_a_text_too_long_is_refused(rules):
    with pytest.raises(GrowsTooMuch, match=r"normalizer make a text more than 1024 times|7 rules take letters apart"):
        check_growth({"normalizer": rules})


def test_before_tokens_and_after_them_it_is_the_same():
    levels = [{"type": "ByteLevel"}] * 7
    with pytest.raises(GrowsTooMuch, match="7 rules take letters apart"):
        check_growth({"pre_tokenizer": {"type": "Sequence", "pretokenizers": levels}})
    with pytest.raises(GrowsTooMuch, match="the rules of decoder"):
        check_growth({"decoder": {"type": "Sequence", "decoders": [DOUBLE] * 20}})


@pytest.mark.parametrize("other", [None, [], "x", {"normalizer": []}, {"normalizer": {"type": 1, "normalizers": {}}},
                                   {"normalizer": {"pattern": "a", "content": 3, "prepend": None}},
                                   {"normalizer": {"pattern": {"String": 1}, "content": "x"}}])
def test_what_is_no_tokenizer_is_told_by_who_reads_it(other):
    check_growth(other)


LOADERS = {"a model": load_vocabulary, "RULER": load_tokenizer,
           "a store": lambda folder: _tokenizer(folder / "tokenizer.json")}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_such_a_tokenizer_is_given_no_text(tmp_path, load):
    make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "normalizer": sequence(*[DOUBLE] * 30)}))
    with pytest.raises(MemAgentError, match=r"tokenizer\.json: the rules of normalizer make a text more than"):
        load(tmp_path)


@pytest.mark.parametrize("settings", [{"extra_ids": 10**6}, {"offset": MOST_MADE + 1}, {"init_inputs": ["a", 1e9]}])
def test_more_tokens_than_models_have_are_not_made(tmp_path, settings):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 100, "offset": 103}))
    check_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=rf"tokenizer_config\.json: {next(iter(settings))} is .* up to {MOST_MADE}"):
        check_tokenizer(tmp_path)
