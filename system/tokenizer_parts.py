"""The rules of a ``tokenizer.json``, one after another, each as an object whose type is known.

The tokenizers library reads a rule from an array as well as from an object, and where it does not know the type it
tries all that it has: ``[{"String": "a"}, "aa"]`` and ``{"type": "x", "pattern": ...}`` are both a Replace to it. None
of that is in a file that it has written itself; here it is refused, as what is not seen cannot be counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

NORMALIZERS = {
    "BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend",
    "Replace", "Sequence", "Strip", "StripAccents",
}
PRE_TOKENIZERS = {
    "BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace", "Punctuation",
    "Sequence", "Split", "UnicodeScripts", "Whitespace", "WhitespaceSplit",
}
DECODERS = {
    "BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece",
}
POST_PROCESSORS = {"BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence", "TemplateProcessing"}
_TYPES = {"normalizer": NORMALIZERS, "pre_tokenizer": PRE_TOKENIZERS, "decoder": DECODERS,
          "post_processor": POST_PROCESSORS}
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")


class GrowsTooMuch(ValueError):
    """A text would be made too long, or it cannot be told how long."""


def rules_of(tokenizer: Any, part: str) -> Iterator[dict[str, Any]]:
    """Of ``normalizer``, ``pre_tokenizer``, ``decoder`` or ``post_processor``, those inside lists in their order.

    Raises GrowsTooMuch for one that the library reads in a way that is not known here.
    """
    left = [rules] if (rules := of(tokenizer, part)) is not None else []
    while left:
        rule = left.pop()
        if not isinstance(rule, dict):
            raise GrowsTooMuch(f"a rule of {part} is {rule!r:.40}, no object")
        kind = rule.get("type")
        if not isinstance(kind, str) or kind not in _TYPES[part]:
            raise GrowsTooMuch(f"a rule of {part} is of type {kind!r:.40}, which is not known")
        yield rule
        left += [inner for name in _LISTS for inner in listed(rule.get(name))][::-1]


def of(value: Any, key: Any) -> Any:
    return value.get(key) if isinstance(value, dict) and isinstance(key, str) else None


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
