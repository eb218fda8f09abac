"""Answers in any language against golds: exact match and token F1 that see digits, each the best over the golds.

A text becomes words, and two texts are compared as multisets of words::

    lower case, full-width digits and letters are plain ones (NFKC); curly quotes and short dashes are ASCII's
    "1,000" is 1000, "3.5" keeps its point, ".5" is 0.5, "-5" keeps its sign
    other ASCII punctuation goes, that of other scripts becomes a blank
    a, an, the go, unless nothing else is left (SQuAD; Rajpurkar et al. 2016)
    what Latin writing parts by blanks stays whole; Chinese and Japanese runs are cut into words by jieba

    prediction            gold           em  f1
    the answer is 7       7              0   0.5     precision 1/3 (answer, is, 7), recall 1
    5                     7              0   0
    7 May                 9 May          0   0.5
    3.5                   35             0   0
    他住在上海。          上海             0   0.4     words 他 住 在 上海
    二〇二三年５月        二〇二三年5月    1   1

Unlike ``qa_metrics``, which published long-document results are in: yes and no are words like others (LoCoMo's golds
say "Likely no"), a decimal point counts, and Chinese is not one word. Unlike MemSifter's own F1 (reference A15, 6),
which keeps letters only and sets of words: "5" against "7" was 1 there, "the answer is 7" against "7" was 0.
Unlike LoCoMo's, nothing is stemmed, and a gold with commas is one answer.

Invariant: an empty prediction, or one of punctuation only, is worth 0.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence

from .qa_metrics import word_f1

_UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts without blanks between words: kana and Han."""
_PIECE = re.compile(rf"[{_UNSPACED}]+|[^\s{_UNSPACED}]+")
_PIECE_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_POINT, _BARE_POINT = re.compile(r"(?<=\d)\.(?=\d)"), re.compile(r"(?<![\w.])\.(?=\d)")
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
_HELD_POINT, _HELD_MINUS = "\ue000", "\ue001"
"""Stand for what is kept while punctuation goes; no text has them, whose private characters have gone before."""
_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_ASCII = str.maketrans({"\u2018": "'", "\u2019": "'", **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")})
_ARTICLES = frozenset({"a", "an", "the"})


def answer_em(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 where the prediction has the words of a gold, in order."""
    said = answer_words(prediction or "")
    return float(any(said == gold for gold in _golds(golds) if said))


def answer_f1(prediction: str | None, golds: Sequence[str]) -> float:
    """The best harmonic mean of precision and recall of words over the golds."""
    said = answer_words(prediction or "")
    return max(word_f1(said, gold) for gold in _golds(golds))


def answer_words(text: str) -> list[str]:
    """The words by which a text is compared, in order."""
    plain = "".join(map(_parted, text.translate(_ASCII)))
    plain = unicodedata.normalize("NFKC", plain).lower()
    plain = _BARE_POINT.sub("0.", _THOUSANDS.sub("", plain))
    plain = _POINT.sub(_HELD_POINT, _MINUS.sub(_HELD_MINUS, plain))
    plain = plain.translate(_PUNCTUATION).replace(_HELD_POINT, ".").replace(_HELD_MINUS, "-")
    words = [word for piece in _PIECE.findall(plain) for word in _cut(piece)]
    return [word for word in words if word not in _ARTICLES] or words


def _parted(character: str) -> str:
    """A blank for punctuation, symbols and controls that are not ASCII."""
    return " " if not character.isascii() and unicodedata.category(character)[0] in "PSZC" else character


def _cut(piece: str) -> Sequence[str]:
    if not _PIECE_UNSPACED.match(piece):
        return (piece,)
    import jieba  # takes 0.8 s, and only Chinese texts need it

    jieba.setLogLevel("ERROR")
    return list(jieba.lcut(piece, HMM=False))  # without its new-word model: words depend on its dictionary alone


def _golds(golds: Sequence[str]) -> list[list[str]]:
    assert golds and not isinstance(golds, str), f"golds must be a non-empty list of strings, got {golds!r}"
    return [answer_words(gold) for gold in golds]
