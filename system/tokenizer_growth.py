r"""How much longer the rules of a ``tokenizer.json`` make a text, looked at before one is given to them.

A rule writes something in the place of what it finds, and the next one reads that: twenty rules of ``a -> aa`` make a
million letters of one. So what the rules of a list can do is multiplied::

    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}              1: as long as it was
    {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}             2
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}            1: it has found a letter at least
    {"type": "Replace", "pattern": {"Regex": "x*"}, "content": " "}              2: it may have found nothing
    {"type": "Prepend", "prepend": "▁"}                                          2: of a single letter

    {"type": "Precompiled", "precompiled_charsmap": ...}                         18: the longest text in its map

Unicode forms and their like make a text longer once, whatever follows them; with rules between them they do so again.
So a rule counts with the letters that these forms make of what it writes, and they themselves are counted.

What a list splits a text into is no longer than the text, but for a letter that some write before each piece: that is
2, as a piece may have one letter only. ``normalizer`` and ``pre_tokenizer`` follow each other, and count as one list.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from typing import Any

from .tokenizer_parts import GrowsTooMuch, rules_of
from .tokenizer_templates import check_templates
from .tokenizer_words import check_words

LONGER = 2**10
"""Times that the rules of a list may make a text longer; those of known models do so up to 18 times."""
UNFOLDING = 6
"""Rules that take letters apart, in all; known models have up to 3."""
_UNFOLD = {"NFD", "NFKD", "NFC", "NFKC", "Lowercase", "Precompiled", "BertNormalizer", "ByteLevel"}
_BYTES = 8
"""Letters that ByteLevel makes of one of up to four bytes, of which some are taken apart as letters in turn."""
_TAKES_A_LETTER = re.compile(
    r"(?!.*(\\K|\(\?#))"
    r"(\[\^?[^\[\]\\&]+\]|\[\^?(\\.|[^\[\]\\&])+\]|\\[sSdDwWnrt]|\\p\{\^?\w+\}|[^\\\[\](){}.?*+|^$#])"
    r"(\+|\{[1-9]\d*(,([1-9]\d*)?)?\})?(?![?*+{])[^|]*",
    re.DOTALL,
)
"""Regular expressions whose first letter is found before anything else; others may find nothing at all: in Oniguruma's
syntax ``a+*``, ``a{1}?`` and ``a{2,0}`` do, and a remark may stand between a letter and its ``*``."""


def check_growth(tokenizer: Any) -> None:
    """Of a ``tokenizer.json`` that was read. Raises GrowsTooMuch; what is no tokenizer is told by whoever reads it."""
    unfolding = 0
    for list_of_rules in (("normalizer", "pre_tokenizer"), ("decoder",)):
        longer = 1.0
        for part in list_of_rules:
            for rule in rules_of(tokenizer, part):
                longer *= _longer(rule, part)
                if longer > LONGER:
                    raise GrowsTooMuch(f"the rules of {part} make a text more than {LONGER} times longer")
                unfolding += part != "decoder" and rule["type"] in _UNFOLD
    if unfolding > UNFOLDING:
        raise GrowsTooMuch(f"{unfolding} rules take letters apart, more than {UNFOLDING}")
    check_templates(tokenizer)
    check_words(tokenizer)


def _longer(rule: dict[str, Any], part: str = "normalizer") -> float:
    """How many letters come of one, at most, of whatever the library may find in it: it looks for what it reads by the
    names of the fields where a type is there twice."""
    by_type = _DECODED if part == "decoder" else _PRE_TOKENIZED if part == "pre_tokenizer" else _NORMALIZED
    longer = max(by_type.get(rule["type"], 1.0), _replaced(rule))
    if isinstance(text := rule.get("prepend"), str):
        longer = max(longer, 1 + _unfolded(text))
    if isinstance(charsmap := rule.get("precompiled_charsmap"), str):
        longer = max(longer, _longest(charsmap))
    if part == "pre_tokenizer" and rule["type"] == "ByteLevel" and rule.get("add_prefix_space") is not False:
        longer *= 2
    if "" in (rule.get("suffix"), rule.get("word_delimiter_token")):
        longer = max(longer, 2.0)
    return longer


_NORMALIZED = {"ByteLevel": _BYTES, "BertNormalizer": 3.0}  # which writes blanks around each Chinese letter
_PRE_TOKENIZED = {"ByteLevel": _BYTES, "Metaspace": 2.0}
_DECODED = {"WordPiece": 2.0}  # which writes a blank before each token


def _replaced(rule: dict[str, Any]) -> float:
    text, pattern = rule.get("content"), rule.get("pattern")
    if not isinstance(text, str) or not isinstance(pattern, dict):
        return 1.0
    written = _unfolded(text)
    if isinstance(found := pattern.get("String"), str):
        return max(1.0, written / len(found)) if found else 1.0 + written
    found = pattern.get("Regex")
    return max(1.0, written) if isinstance(found, str) and _TAKES_A_LETTER.fullmatch(found) else 1.0 + written


def _unfolded(text: str) -> int:
    """Its letters once they are taken apart, as far as they go; of a long text not, as that takes a square of time."""
    if text.isascii() or len(text) > LONGER:
        return len(text)
    small = unicodedata.normalize("NFKD", text).lower()
    return max(len(text), len(unicodedata.normalize("NFKD", text.lower())), len(unicodedata.normalize("NFKD", small)))


def _longest(charsmap: str) -> int:
    """Letters of the longest text in a map of SentencePiece's: the size of a trie in four bytes, the trie, the texts,
    with a zero between them. 0 for what is none."""
    try:
        content = base64.b64decode(charsmap)
    except ValueError:
        return 0
    texts = content[4 + int.from_bytes(content[:4], "little"):].decode(errors="replace")
    return max(map(_unfolded, texts.split("\0")))
