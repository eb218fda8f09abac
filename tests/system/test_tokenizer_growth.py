"""Rules that make a text longer and longer end in one line before a text is given to them; those of models do not."""

import base64
import io
import json
from math import prod

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
from mem_agent.system.tokenizer_growth import LONGER, _longer, check_growth
from mem_agent.system.tokenizer_ids import MOST_MADE, check_tokenizer
from mem_agent.system.tokenizer_panics import TokenizerFailed, panics_told
from mem_agent.system.tokenizer_parts import GrowsTooMuch
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


def sequence(*rules):
    return {"type": "Sequence", "normalizers": list(rules)}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


DOUBLE, SPLIT = replace("a", "aa"), {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
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
    for splits in (METASPACE, {"type": "ByteLevel"}):
        with pytest.raises(GrowsTooMuch, match="the rules of pre_tokenizer make a text more than 1024 times longer"):
            check_growth({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, splits] * 16}})
    with pytest.raises(GrowsTooMuch, match="the rules of pre_tokenizer"):  # which follow those of the normalizer
        check_growth({"normalizer": sequence(*[DOUBLE] * 10), "pre_tokenizer": METASPACE})
    with pytest.raises(GrowsTooMuch, match="the rules of decoder"):
        check_growth({"decoder": {"type": "Sequence", "decoders": [DOUBLE] * 20}})


@pytest.mark.parametrize("rule", [
    {"type": "BPEDecoder", "suffix": ""}, {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "", "cleanup": True},
])
def test_decoders_that_write_a_blank_each_time_are_counted(rule):
    check_growth({"decoder": rule})
    with pytest.raises(GrowsTooMuch, match="the rules of decoder make a text more than 1024 times longer"):
        check_growth({"decoder": {"type": "Sequence", "decoders": [rule] * 16}})


@pytest.mark.parametrize("rule", [
    {**DOUBLE, "prepend": ""}, {**DOUBLE, "precompiled_charsmap": ""}, {**DOUBLE, "type": "Strip"},
    {**DOUBLE, "type": "NFC", "suffix": "x"},
])
def test_other_fields_hide_none(rule):
    with pytest.raises(GrowsTooMuch, match="more than 1024 times longer"):
        check_growth({"normalizer": sequence(*[rule] * 16)})


@pytest.mark.parametrize("rule", [
    [{"String": "a"}, "aa"], [[DOUBLE]], {**DOUBLE, "type": "x"}, {**DOUBLE, "type": None},
    {**DOUBLE, "type": ["Replace"]}, {"pattern": {"String": "a"}, "content": "aa"}, {"type": "BPEDecoder"}, "NFC", 3,
])
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor"])
def test_what_the_library_reads_in_another_way_is_refused(rule, part):
    lists = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
    for rules in (rule, {"type": "Sequence", lists[part]: [rule]}):
        with pytest.raises(GrowsTooMuch, match=f"a rule of {part} is .*(no object|not known)"):
            check_growth({part: rules})


@pytest.mark.parametrize("other", [None, [], "x", {"normalizer": {"type": "Sequence", "normalizers": {}}},
                                   {"normalizer": {"type": "Replace", "pattern": "a", "content": 3, "prepend": None}},
                                   {"normalizer": {"type": "Replace", "pattern": {"String": 1}, "content": "x"}},
                                   {"post_processor": {"type": "TemplateProcessing", "single": 3}}, {"model": []},
                                   {"added_tokens": {"content": 3}}])
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


EMPTY = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": None, "post_processor": None, "decoder": None,
         "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}
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


RULES = st.one_of(
    st.builds(replace, st.sampled_from(["", "a", "b", "İ", "中", " "]),
              st.sampled_from(["", "a", "ab", "ﷺ", "İ", "ᾂ", "中", " ", "한"])),
    st.builds(lambda text: {"type": "Prepend", "prepend": text}, st.sampled_from(["a", "ﷺ", "ab"])),
    st.sampled_from([{"type": kind} for kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                                                 "ByteLevel")]),
    st.just({"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
             "lowercase": True}),
)
OF_A_LETTER = 18
"""Letters that Unicode's forms make of one, once."""


@given(st.lists(RULES, max_size=8), st.text("ab 中ﷺİ한\n", min_size=1, max_size=6))
def test_no_list_of_rules_makes_a_text_longer_than_is_said(rules, text):
    said = float(OF_A_LETTER * prod(map(_longer, rules)))
    if said > 2**20:
        return
    tokenizer = Tokenizer.from_str(json.dumps({**EMPTY, "normalizer": sequence(*rules)}))
    try:
        with panics_told():
            made = tokenizer.normalizer.normalize_str(text)
    except TokenizerFailed:  # a fault of the library's in texts that a rule has emptied
        return
    assert len(made) < said * (len(text) + 1), (rules, text)


DECODING = st.one_of(
    st.builds(replace, st.sampled_from(["", "a", " "]), st.sampled_from(["", "a", "ab", " "])),
    st.builds(lambda text: {"type": "BPEDecoder", "suffix": text}, st.sampled_from(["", "a", "ab"])),
    st.builds(lambda text: {"type": "CTC", "pad_token": "b", "word_delimiter_token": text, "cleanup": True},
              st.sampled_from(["", "a", " "])),
    st.builds(lambda text: {"type": "WordPiece", "prefix": text, "cleanup": True}, st.sampled_from(["", "a", "##"])),
    st.sampled_from([METASPACE, {"type": "Fuse"}, {"type": "ByteFallback"}, BYTES,
                     {"type": "Strip", "content": "a", "start": 1, "stop": 0}]),
)


@given(st.lists(DECODING, max_size=8), st.lists(st.text("ab ▁", min_size=1, max_size=4), min_size=1, max_size=4))
def test_no_list_of_decoders_makes_a_text_longer_than_is_said(rules, tokens):
    said = prod(_longer(rule, "decoder") for rule in rules)
    decoder = Tokenizer.from_str(json.dumps({**EMPTY, "decoder": {"type": "Sequence", "decoders": rules}})).decoder
    assert len(decoder.decode(tokens)) < said * sum(len(token) + 1 for token in tokens), (rules, tokens)


SPLITTING = st.one_of(
    st.builds(lambda text, scheme: {**METASPACE, "replacement": text, "prepend_scheme": scheme, "split": False},
              st.sampled_from("ab▁"), st.sampled_from(["always", "first", "never"])),
    st.sampled_from([{"type": kind} for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer",
                                                 "UnicodeScripts")]),
    st.builds(lambda behaviour: {"type": "Split", "pattern": {"Regex": "."}, "behavior": behaviour, "invert": False},
              st.sampled_from(["Isolated", "MergedWithNext", "Contiguous"])),
    st.builds(lambda prefix: {**BYTES, "add_prefix_space": prefix}, st.booleans()),
    st.sampled_from([{"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"},
                     {"type": "FixedLength", "length": 1}, {"type": "CharDelimiterSplit", "delimiter": "a"}]),
)


@given(st.lists(SPLITTING, max_size=6), st.text("ab 1.中\U0001f600", min_size=1, max_size=6))
def test_no_list_that_splits_makes_a_text_longer_than_is_said(rules, text):
    said = prod(_longer(rule, "pre_tokenizer") for rule in rules)
    if said > 2**16:
        return
    splits = {"type": "Sequence", "pretokenizers": rules}
    pieces = Tokenizer.from_str(json.dumps({**EMPTY, "pre_tokenizer": splits})).pre_tokenizer.pre_tokenize_str(text)
    assert sum(len(piece) for piece, _ in pieces) <= said * len(text), (rules, text)


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
    text = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [text, text], "pair": [], "special_tokens": {}}
    twice = {"type": "Sequence", "processors": [template] * 4}
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
