"""The encoding of a text that is no UTF-8 and names none.

charset-normalizer counts how often letters follow each other, of which a short text says little: of 27 sentences in
windows-1252, by far the most frequent of the old encodings, it knows 9. So a short one is that if it reads like it::

    He said \\x93yes\\x94 \\x96 it\\x92s \\x805           quotes and dashes stand where they do: “yes” – it’s €5
    \\xc0\\xed\\xed\\xe0 \\xe8\\xec\\xe5\\xe5\\xf2          all letters have accents, as no language has: Анна имеет
    rzek\\xb3                                  a sign behind a letter, rzek³: rzekł
"""

from __future__ import annotations

import re

_WESTERN = "cp1252"
_SHORT = 512
"""Bytes."""
_LETTERS = "A-Za-zÀ-ÖØ-öø-ÿŒœŸ"
_ODD = re.compile(rf"""
    [ŠšŽžÝýÞþÐð×÷ƒˆ˜ªº] | õ(?!e)                             # letters of Prague, Istanbul and Budapest
    | [a-zß-öø-ÿœ][À-ÖØ-ÞŒŸ]                                  # a capital within a word
    | (?<=[{_LETTERS}]) [^\x00-\x7f{_LETTERS}‘’“”–—…«»™®·\xa0\xad]
    | [^\x00-\x7f{_LETTERS}‘’“”„‚–—…«»¿¡°•\xa0\xad] (?=[{_LETTERS}])
""", re.X)  # fmt: skip
"""What western texts hardly have, and other encodings' letters look like."""
_MEASURES = re.compile(r"\b[ckm]?m[²³]")


def guessed(content: bytes) -> tuple[str, str] | None:
    """Text and encoding, or None where there is none that would do."""
    if len(content) <= _SHORT:
        try:
            text = content.decode(_WESTERN)
        except UnicodeDecodeError:  # of its 256 bytes five are none
            pass
        else:
            if _is_western(text):
                return text, _WESTERN
    from charset_normalizer import from_bytes  # slow, and seldom needed

    best = from_bytes(content).best()
    return None if best is None else (str(best), best.encoding)


def _is_western(text: str) -> bool:
    """Words have letters without accents, a third of them at least."""
    words = re.findall(f"[{_LETTERS}]{{2,}}", text)
    return not _ODD.search(_MEASURES.sub("", text)) and all(
        3 * sum(map(str.isascii, word)) >= len(word) for word in words)
