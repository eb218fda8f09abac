r"""The encoding of a text that is no UTF-8 and names none.

charset-normalizer counts how often letters follow each other, of which a short text says little: of 1,000 messages of
programs in windows-1252, by far the most frequent of the old encodings, it knows 452. So a short one is first held
against what texts in three of them look like, and is the first that it could be::

    \x93\x63\x92\x86: 30               cp932     what is not Latin stands apart: 田中, and no “c’†
    \xd6\xd0\xb9\xfa                   gb18030   each of Chinese's frequent characters: 中国, and no ÖÐ¹ú
    \x93yes\x94 \x96 it\x92s n\xb0 5   cp1252    quotes and signs stand where they do: “yes” – it’s n° 5
    \xc0\xed\xed\xe0 \xe8\xec\xe5      none      all letters have accents, as no language has: Анна име
    rzek\xb3, Gda\xf1sk                none      letters stand where none do, rzek³, Gdañsk: rzekł, Gdańsk

Of a text of one word there may be no telling.
"""

from __future__ import annotations

import re

_SHORT = 512
"""Bytes."""
_READ = [
    "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874", "cp932",
    "cp949", "gb18030", "big5", "euc_jp", "koi8_r", "koi8_u", "iso8859_2", "iso8859_5", "iso8859_7", "iso8859_8",
    "mac_cyrillic", "cp437", "cp850", "cp852", "cp866",
]  # fmt: skip
"""Of the 90 that charset-normalizer knows, what browsers read and DOS wrote, but Macs: the others are hardly ever
right."""

# --- Japanese and Chinese --------------------------------------------------------------------------------------------
_NOT_JAPANESE = re.compile("[\x80-\xff\u2500-\u257f\uff61-\uff9f\ue000-\uf8ff]")
"""Of one byte, as letters of other encodings are; lines of tables; what Japan has not agreed upon."""
_HIRAGANA = re.compile("[\u3041-\u3096]")
_NEAR_LATIN = re.compile("[A-Za-z][^\x00-\x7f]|[^\x00-\x7f][A-Za-z]")
_JAPANESE_RARE = 0x99
"""The first byte of frequent characters is less."""

_CHINESE = re.compile(rb"""(?:
    [\x00-\x7f]
    | (?:[\xa1\xa3\xb0-\xd7][\xa1-\xfe]){2,}+                                # signs, and the 3,755 that are frequent
    | (?<![A-Za-z]) [\xa1\xa3\xb0-\xd7][\xa1-\xfe] (?![A-Za-z])
)++""", re.X)  # fmt: skip
_NOT_KOREAN = 0xC9
"""The first byte of Korean's letters is less, and they are two bytes that could be Chinese as well."""

# --- western ---------------------------------------------------------------------------------------------------------
_LETTERS = "A-Za-zÀ-ÖØ-öø-ÿŒœŸ"
_ODD = re.compile(rf"""
    [ŠšŽžÝýÞþÐð×÷ƒˆ˜ªº] | õ(?!e)                             # letters of Prague, Istanbul and Budapest
    | ñ(?![aeiouáéíóúü]) | [kwz]ê | ê(?=[jkwz]) | [aeiouy]æ\b | œ(?=[æbfghjkopqvwxzñ]|\b)     # Warsaw
    | ã(?=[^\W\doeisz]) | \b[cdms]ã\b | ì(?=\w) | ù(?=\w) | è(?=[aeiouyjk]) | û(?=[bdgjkvz])  # Bucharest, Zagreb
    | [a-zß-öø-ÿœ][À-ÖØ-ÞŒŸ]                                  # a capital within a word
    | (?<=[{_LETTERS}]) [^\x00-\x7f{_LETTERS}‘’“”–—…«»™®·\xa0\xad]
    | [^\x00-\x7f{_LETTERS}‘’“”„‚–—…«»¿¡°•·\xa0\xad] (?=[{_LETTERS}])
    | (?<=[^\s\d(]) [†‡‰]
""", re.X)  # fmt: skip
"""What western texts hardly have, and other encodings' letters look like."""
_USUAL = re.compile(r"\b[ckm]?m[²³]|\b[Nn]\.?[°º]|(?<=[\d.])[ªº](?!\w)|µ(?=[A-Za-z]{1,2}\b)|(?<=\d)×(?=\d)")
"""But measures and numbers: m², n° 5, 2.ª, 5 µm, 3×4."""


def guessed(content: bytes) -> tuple[str, str] | None:
    """Text and encoding, or None where there is none that would do."""
    short = len(content) <= _SHORT
    if short:
        for encoding, could_be in (("cp932", _is_japanese), ("gb18030", _is_chinese), ("cp1252", _is_western)):
            try:
                text = content.decode(encoding)
            except UnicodeDecodeError:
                continue
            if could_be(text):
                return text, encoding
    from charset_normalizer import from_bytes  # slow, and seldom needed

    best = (from_bytes(content, cp_isolation=_READ).best() if short else None) or from_bytes(content).best()
    return None if best is None else (str(best), best.encoding)


def _is_japanese(text: str) -> bool:
    """A letter with an accent and the one behind it could be a character, but for the letters around them."""
    if _NOT_JAPANESE.search(text):
        return False
    frequent = any(character.encode("cp932")[0] < _JAPANESE_RARE for character in text if not character.isascii())
    return _HIRAGANA.search(text) is not None or (frequent and not _NEAR_LATIN.search(text))


def _is_chinese(text: str) -> bool:
    first = max((character.encode("gb18030")[0] for character in text), default=0)
    return first >= _NOT_KOREAN and _CHINESE.fullmatch(text.encode("gb18030")) is not None


def _is_western(text: str) -> bool:
    """Words have letters without accents, a third of them at least."""
    words = re.findall(f"[{_LETTERS}]{{2,}}", text)
    return not _ODD.search(_USUAL.sub("", text)) and all(
        3 * sum(map(str.isascii, word)) >= len(word) for word in words)
