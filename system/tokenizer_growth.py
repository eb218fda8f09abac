r"""How much longer the rules of a ``tokenizer.json`` make a text, looked at before one is given to them.

A rule writes something in the place of what it finds, and the next one reads that: twenty rules of ``a -> aa`` make a
million letters of one. So what the rules of a list can do is multiplied::

    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}              1: as long as it was
    {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}             2
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}            1: it has found a letter at least
    {"type": "Replace", "pattern": {"Regex": "x*"}, "content": " "}              2: it may have found nothing
    {"type": "Prepend", "prepend": "▁"}                                          2: of a single letter

Unicode forms and their like make a text longer once, whatever follows them; with rules between them they do so again,
and therefore they are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LONGER = 2**10
"""Times that the rules of a list may make a text longer; those of known models do so up to 4 times."""
UNFOLDING = 6
"""Rules that take letters apart, in all; known models have up to 3."""
_UNFOLD = {"NFD", "NFKD", "NFC", "NFKC", "Lowercase", "Precompiled", "BertNormalizer", "ByteLevel"}
_LISTS = ("normalizers", "pretokenizers", "decoders")
_TAKES_A_LETTER = re.compile(
    r"(\[\^?[^\[\]\\&]+\]|\[\^?(\\.|[^\[\]\\&])+\]|\\[sSdDwWnrt]|\\p\{\^?\w+\}|[^\\\[\](){}.?*+|^$#])"
    r"(?![?*]|\{[,0])(?!.*\\K)[^|]*"
)
"""Regular expressions whose first letter is found before anything else; others may find nothing at all."""


class GrowsTooMuch(ValueError):
    """A text would be made too long."""


def check_growth(tokenizer: Any) -> None:
    """Of a ``tokenizer.json`` that was read. Raises GrowsTooMuch; what is no tokenizer is told by whoever reads it."""
    unfolding = 0
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        longer = 1.0
        for rule in _rules(tokenizer.get(part) if isinstance(tokenizer, dict) else None):
            longer *= _longer(rule)
            if longer > LONGER:
                raise GrowsTooMuch(f"the rules of {part} make a text more than {LONGER} times longer")
            unfolding += part != "decoder" and str(rule.get("type")) in _UNFOLD
    if unfolding > UNFOLDING:
        raise GrowsTooMuch(f"{unfolding} rules take letters apart, more than {UNFOLDING}")


def _rules(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for name in _LISTS:
            for rule in part[name] if isinstance(part.get(name), list) else ():
                yield from _rules(rule)


def _longer(rule: dict[str, Any]) -> float:
    """How many letters come of one, at most."""
    if isinstance(text := rule.get("prepend"), str):
        return 1 + len(text)
    text, pattern = rule.get("content"), rule.get("pattern")
    if not isinstance(text, str) or not isinstance(pattern, dict):
        return 1
    if isinstance(found := pattern.get("String"), str):
        return max(1.0, len(text) / len(found)) if found else 1 + len(text)
    found = pattern.get("Regex")
    return max(1, len(text)) if isinstance(found, str) and _TAKES_A_LETTER.fullmatch(found) else 1 + len(text)
