r"""How much longer the rules of a ``tokenizer.json`` make a text, looked at before one is given to them.

A rule writes something in the place of what it finds, and the next one reads that: twenty rules of ``a -> aa`` make a
million letters of one. So what the rules of a list can do is multiplied::

    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}              1: as long as it was
    {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}             2
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}            1: it has found a letter at least
    {"type": "Replace", "pattern": {"Regex": "x*"}, "content": " "}              2: it may have found nothing
    {"type": "Prepend", "prepend": "▁"}                                          2: of a single letter

    {"type": "Precompiled", "precompiled_charsmap": ...}                         18: the longest text in its map

Unicode forms and their like make a text longer once, whatever follows them; with rules between them they do so again,
and therefore they are counted. Behind the rules a template writes tokens and texts, which are counted as well.

Two models take more time than a text is long: WordPiece tries each beginning of what is left of a word, and Unigram
reads, at each letter, as far as its longest token goes. So words and tokens are bounded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

LONGER = 2**10
"""Times that the rules of a list may make a text longer; those of known models do so up to 18 times."""
UNFOLDING = 6
"""Rules that take letters apart, in all; known models have up to 3."""
LONGEST_WORD = 2**10
"""Letters of a word that WordPiece takes apart, of which known models have 100; and of a token of Unigram."""
_UNFOLD = {"NFD", "NFKD", "NFC", "NFKC", "Lowercase", "Precompiled", "BertNormalizer", "ByteLevel"}
_LISTS = ("normalizers", "pretokenizers", "decoders", "processors")
_TAKES_A_LETTER = re.compile(
    r"(?!.*(\\K|\(\?#))"
    r"(\[\^?[^\[\]\\&]+\]|\[\^?(\\.|[^\[\]\\&])+\]|\\[sSdDwWnrt]|\\p\{\^?\w+\}|[^\\\[\](){}.?*+|^$#])"
    r"(\+|\{[1-9]\d*(,([1-9]\d*)?)?\})?(?![?*+{])[^|]*",
    re.DOTALL,
)
"""Regular expressions whose first letter is found before anything else; others may find nothing at all: in Oniguruma's
syntax ``a+*``, ``a{1}?`` and ``a{2,0}`` do, and a remark may stand between a letter and its ``*``."""


class GrowsTooMuch(ValueError):
    """A text would be made too long."""


def check_growth(tokenizer: Any) -> None:
    """Of a ``tokenizer.json`` that was read. Raises GrowsTooMuch; what is no tokenizer is told by whoever reads it."""
    unfolding = 0
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        longer = 1.0
        for rule in _rules(_of(tokenizer, part)):
            longer *= _longer(rule)
            if longer > LONGER:
                raise GrowsTooMuch(f"the rules of {part} make a text more than {LONGER} times longer")
            unfolding += part != "decoder" and str(rule.get("type")) in _UNFOLD
    if unfolding > UNFOLDING:
        raise GrowsTooMuch(f"{unfolding} rules take letters apart, more than {UNFOLDING}")
    _check_templates(tokenizer)
    _check_words(tokenizer)


def _check_templates(tokenizer: Any) -> None:
    written = sum(map(_written, _rules(_of(tokenizer, "post_processor"))))
    if written > LONGER:
        raise GrowsTooMuch(f"the templates of post_processor write {written} tokens and texts, more than {LONGER}")


def _written(template: dict[str, Any]) -> int:
    """Tokens and texts of a template, in each of its two forms."""
    pieces = [piece for form in ("single", "pair") for piece in _listed(template.get(form))]
    tokens = [_of(template.get("special_tokens"), _of(_of(piece, "SpecialToken"), "id")) for piece in pieces]
    return len(pieces) + sum(len(_listed(_of(token, "ids"))) for token in tokens)


def _check_words(tokenizer: Any) -> None:
    model = _of(tokenizer, "model")
    longest = _of(model, "max_input_chars_per_word")
    if isinstance(longest, int | float) and longest > LONGEST_WORD:
        raise GrowsTooMuch(f"max_input_chars_per_word is {longest!r:.40}, more than {LONGEST_WORD}")
    if any(len(_text(token)) > LONGEST_WORD for token in _listed(_of(model, "vocab"))):
        raise GrowsTooMuch(f"a token of its vocab has more than {LONGEST_WORD} letters")


def _rules(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for name in _LISTS:
            for rule in _listed(part.get(name)):
                yield from _rules(rule)


def _of(value: Any, key: Any) -> Any:
    return value.get(key) if isinstance(value, dict) and isinstance(key, str) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(token: Any) -> str:
    """Of Unigram's ``["a", -1.5]``."""
    return token[0] if isinstance(token, list) and token and isinstance(token[0], str) else ""


def _longer(rule: dict[str, Any]) -> float:
    """How many letters come of one, at most."""
    if isinstance(text := rule.get("prepend"), str):
        return 1 + len(text)
    if isinstance(charsmap := rule.get("precompiled_charsmap"), str):
        return max(1, _longest(charsmap))
    text, pattern = rule.get("content"), rule.get("pattern")
    if not isinstance(text, str) or not isinstance(pattern, dict):
        return 1
    if isinstance(found := pattern.get("String"), str):
        return max(1.0, len(text) / len(found)) if found else 1 + len(text)
    found = pattern.get("Regex")
    return max(1, len(text)) if isinstance(found, str) and _TAKES_A_LETTER.fullmatch(found) else 1 + len(text)


def _longest(charsmap: str) -> int:
    """Letters of the longest text in a map of SentencePiece's: the size of a trie in four bytes, the trie, the texts,
    with a zero between them. 0 for what is none."""
    try:
        content = base64.b64decode(charsmap)
    except ValueError:
        return 0
    texts = content[4 + int.from_bytes(content[:4], "little"):].decode(errors="replace")
    return max(map(len, texts.split("\0")))
