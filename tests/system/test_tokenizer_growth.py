"""Rules that make a text longer and longer end in one line before a text is given to them; those of models do not."""

import base64
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers

from mem_agent.agents.embedding import Embedding
from mem_agent.checkpoints.hf_model import load_vocabulary
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.ruler.tokens import load_tokenizer
from mem_agent.sifter.stores.embedding_store import TokenCounter, _tokenizer
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.system.tokenizer_growth import LONGER, LONGEST_WORD, GrowsTooMuch, _longer, check_growth
from mem_agent.system.tokenizer_ids import MOST_MADE, check_tokenizer
from mem_agent.system.tokenizer_panics import TokenizerFailed
from mem_agent.tests.helpers.tiny_model import make_tiny_model
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
    "found nothing, by signs in succession": sequence(*[replace(found, "b", "Regex") for found in (
        "a+*", "a+?*", "a++*", "a{1}?", "a{1,2}*", "a{3,0}", "a{2}{0}", "a(?#)*", "a+(?#)?", "[a]+*", "\n\n\\K")]),
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


LETTER = st.sampled_from(["a", "b", "[ab]", "[^a]", r"\w", "\n", r"\p{L}", "(a)", "(?:a|b)", ".", "(?=a)", "(?<=a)",
                          r"\b", "^"])
SIGN = st.sampled_from(["", "*", "+", "?", "{0}", "{,2}", "{1}", "{1,2}", "{2,0}", "{2,}", "(?#)", r"\K", "|", "(?i)"])


@given(st.lists(st.tuples(LETTER, SIGN, SIGN), min_size=1, max_size=3), st.text("ab\n", min_size=1, max_size=12))
def test_no_regular_expression_makes_a_text_longer_than_is_said(parts, text):
    found = "".join(map("".join, parts))
    rule = replace(found, "zz", "Regex")
    try:
        made = normalizers.Replace(Regex(found), "zz").normalize_str(text)
    except Exception:  # no expression
        return
    ends = len("zz")  # nothing is found once more than there are letters
    assert len(made) <= _longer(rule) * len(text) + ends, (found, text, made)


def test_a_map_of_letters_counts_as_its_longest_text():
    def charsmap(*texts):
        return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(
            (8).to_bytes(4, "little") + bytes(8) + "\0".join(texts).encode()).decode()}

    check_growth({"normalizer": sequence(charsmap("ﷺ" * 18, "b"))})
    check_growth({"normalizer": charsmap("a" * LONGER)})
    for rules in (charsmap("b", "a" * (LONGER + 1)), sequence(*[charsmap("ﷺ" * 18)] * 3)):
        with pytest.raises(GrowsTooMuch, match="normalizer make a text more than 1024 times"):
            check_growth({"normalizer": rules})
    for damaged in ("", "a", "////", "ab€"):
        check_growth({"normalizer": {"type": "Precompiled", "precompiled_charsmap": damaged}})


def test_the_map_that_sentencepiece_makes_is_read():
    """Of the trainer's nmt_nfkc; its longest text is the 18 letters of U+FDFA."""
    sentencepiece, made = pytest.importorskip("sentencepiece"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d"] * 9), model_writer=made, vocab_size=9,
                                             hard_vocab_limit=False, minloglevel=3)
    from sentencepiece import sentencepiece_model_pb2

    content = sentencepiece_model_pb2.ModelProto.FromString(made.getvalue()).normalizer_spec.precompiled_charsmap
    rule = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}
    assert _longer(rule) == len(normalizers.Precompiled(content).normalize_str("\ufdfa")) == 18


def template(single, ids=(1,), pair=()):
    pieces = {"A": {"Sequence": {"id": "A", "type_id": 0}}, "x": {"SpecialToken": {"id": "x", "type_id": 0}}}
    return {"type": "TemplateProcessing", "single": [pieces[name] for name in single], "pair": list(pair),
            "special_tokens": {"x": {"id": "x", "ids": list(ids), "tokens": ["x"] * len(ids)}}}


def test_what_a_template_writes_is_bounded():
    check_growth({"post_processor": template("xAx")})
    of_models = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, template("A" * LONGER)]}
    check_growth({"post_processor": of_models})
    for many in (template("A" * (LONGER + 1)), template("x" * 40 + "A", [1] * 30),
                 {"type": "Sequence", "processors": [template("A" * 700)] * 2}):
        with pytest.raises(GrowsTooMuch, match=r"post_processor write 1\d\d\d tokens and texts, more than 1024"):
            check_growth({"post_processor": many})


def test_words_and_tokens_that_a_model_reads_again_and_again_are_bounded():
    check_growth({"model": {"type": "WordPiece", "max_input_chars_per_word": LONGEST_WORD}})
    with pytest.raises(GrowsTooMuch, match="max_input_chars_per_word is 1000000000, more than 1024"):
        check_growth({"model": {"type": "WordPiece", "max_input_chars_per_word": 10**9}})
    check_growth({"model": {"type": "Unigram", "vocab": [["a" * LONGEST_WORD, -1.0], [], 3, [4], None]}})
    with pytest.raises(GrowsTooMuch, match="a token of its vocab has more than 1024 letters"):
        check_growth({"model": {"type": "Unigram", "vocab": [["a", -1.0], ["a" * (LONGEST_WORD + 1), -1.0]]}})


GIVES_UP = replace("(a+)+$b", "x", "Regex")


@pytest.mark.parametrize(("embed", "line"), [
    (lambda folder: Embedding(folder).embed(["a" * 60]), ": its tokenizer failed: .*retry-limit-in-match"),
    (lambda folder: SentenceEncoder("mine", folder).encode(["a" * 60]), "MEM_IR_MODEL='mine': its tokenizer failed: "),
], ids=["embedding", "sentences"])
def test_an_embedding_model_whose_expressions_give_up_is_one_line(tmp_path, embed, line):
    make_tiny_model(tmp_path, tied=True)
    make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "normalizer": GIVES_UP}))
    with pytest.raises(TokenizerFailed, match=line):
        embed(tmp_path)


def test_two_templates_in_succession_at_which_the_library_ends_are_one_line(tmp_path):
    make_tiny_model(tmp_path, tied=True)
    make_tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    twice = {"type": "Sequence", "processors": [template("AA"), template("AA")] * 2}
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "post_processor": twice}))
    with pytest.raises(ConfigError, match="no embedding model can be loaded from it: TokenizerFailed: "):
        Embedding(tmp_path)


def test_a_store_whose_tokenizer_gives_up_is_one_line(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.normalizer = normalizers.Replace(Regex(GIVES_UP["pattern"]["Regex"]), "x")
    tokenizer.save(str(tmp_path / "mine.json"))
    counts = TokenCounter(tmp_path / "kept", str(tmp_path / "mine.json"))
    for count in (lambda text: counts.count(text), lambda text: counts.texts([text])):
        with pytest.raises(TokenizerFailed, match=r"mine\.json: this tokenizer failed: "):
            count("a" * 60)
