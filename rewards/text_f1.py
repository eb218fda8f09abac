r"""Answers in any language against golds: exact match and token F1 that see digits, each the best over the golds.

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

Which option of a multiple-choice question a reply chooses (PersonaMem's form: ``(a) ...``, one of four).

The first rule that finds exactly one option decides; one that finds several decides that none is chosen::

    1. letters in brackets, bold or boxed   "(c)", "I would say **C**.", "\boxed{c}"; but "(a) or (c)" chooses none
    2. a letter that stands for itself   "c", "C.", "c) Tea", "option c", "the answer is C", "选 c", "答案是C",
       "The best one is C", "C is right"
    3. the text of an option     "You said you like tea": the option's own words, whole, in order

A lone "a" within a sentence is a word, not an option. The published rule (PersonaMem, ``extract_answer``) takes any of
the letters a to d that stands alone, so "a good idea is (c)" and "a tea" choose there as well.
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
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_BARE_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
_PUNCTUATION = re.compile(rf"((?<=\d)\.(?=\d)|(?<![\w.])-(?=\d))|[{re.escape(string.punctuation)}]")
"""A number's point or sign, which stays, or a mark that goes."""
_ASCII = str.maketrans({"\u2018": "'", "\u2019": "'", **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-")})
_ARTICLES = frozenset({"a", "an", "the"})


def answer_em(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 where the prediction has the words of a gold, in order."""
    said = answer_words(prediction or "")
    return float(bool(said) and said in map(answer_words, golds))


def answer_f1(prediction: str | None, golds: Sequence[str]) -> float:
    """The best harmonic mean of precision and recall of words over the golds."""
    said = answer_words(prediction or "")
    return max(word_f1(said, answer_words(gold)) for gold in golds)


def answer_words(text: str) -> list[str]:
    """The words by which a text is compared, in order."""
    # A blank for punctuation, symbols and controls that are not ASCII.
    plain = "".join(" " if not character.isascii() and unicodedata.category(character)[0] in "PSZC" else character
                    for character in text.translate(_ASCII))
    plain = unicodedata.normalize("NFKC", plain).lower()
    plain = _BARE_POINT.sub("0.", _THOUSANDS.sub("", plain))
    plain = _PUNCTUATION.sub(lambda mark: mark[1] or "", plain)
    words = [word for piece in _PIECE.findall(plain) for word in _cut(piece)]
    return [word for word in words if word not in _ARTICLES] or words


def _cut(piece: str) -> Sequence[str]:
    if not re.match(f"[{_UNSPACED}]", piece):
        return (piece,)
    import jieba  # takes 0.8 s, and only Chinese texts need it

    jieba.setLogLevel("ERROR")
    return list(jieba.lcut(piece, HMM=False))  # without its new-word model: words depend on its dictionary alone


# --- options ---------------------------------------------------------------------------------------------------------

MOST_OPTIONS = len(string.ascii_lowercase)
"""As many as there are letters to choose by; with more it is no multiple choice."""
_LABEL = re.compile(r"\s*[(（\[]?([a-z])[)）\].:：、]\s*", re.I)
_MARKED = re.compile(r"(?:[(（\[]|\*\*|\\boxed\s*\{(?:\\text\s*\{)?)\s*([a-z])\s*(?:[)）\]}]|\*\*)", re.I)
_ALONE = re.compile(r"\s*([a-z])\s*(?:[).:：、,。]|$)", re.I)
_NAMED = re.compile(
    r"(?:\b(?:options?|choices?|answers?)(?:\s++is)?+\s*+[:：]?|选项?|选择|答案是?[:：]?)\s*+\**"
    r"(a(?!\s+[a-z])|[b-z])(?![a-z'])",
    re.I,
)
_JUDGED = re.compile(
    r"\bis\s+([A-Z])(?=\s*(?:[.,;!]|$))|\b([A-Z])\s+is\s+(?:the\s+)?(?:right|correct|best|answer)\b")


def chosen_option(reply: str | None, options: Sequence[str]) -> int | None:
    """The number, from 0, of the option that a reply chooses; None where it chooses none, or several."""
    text = (reply or "").strip()
    letters = {label: number for number, label in enumerate(option_labels(options))}
    alone = _ALONE.match(text)
    judged = ["".join(groups) for groups in _JUDGED.findall(text)]
    rules = (_MARKED.findall(text), [alone[1]] if alone else [], [*_NAMED.findall(text), *judged])
    for found in rules:
        if named := {letters[letter.lower()] for letter in found if letter.lower() in letters}:
            return named.pop() if len(named) == 1 else None
    said = f" {' '.join(answer_words(text))} "
    texts = [" ".join(answer_words(option_text(option))) for option in options]
    meant = [number for number, words in enumerate(texts) if words and f" {words} " in said]
    return meant[0] if len(meant) == 1 else None


def choice_score(reply: str | None, answers: Sequence[str], options: Sequence[str]) -> float | None:
    """1.0 where the right option is chosen, else 0.0.

    None where there are no options, or more than MOST_OPTIONS, or no answer names one, whole or by label or text.
    """
    if len(options) > MOST_OPTIONS:
        return None
    named = {option.strip(): number for number, option in enumerate(options)}
    named |= {option_text(option): number for number, option in enumerate(options)}
    named |= {f"({label})": number for number, label in enumerate(option_labels(options))}
    right = [named[answer.strip()] for answer in answers if answer.strip() in named]
    return float(chosen_option(reply, options) == right[0]) if right else None


def option_labels(options: Sequence[str]) -> list[str]:
    """The letters of the options: as they are written, or a, b, c ... where they are not, or not each its own."""
    written = [match[1].lower() if (match := _LABEL.match(option)) else "" for option in options]
    lettered = all(written) and len(set(written)) == len(written)
    return written if lettered else list(string.ascii_lowercase[: len(options)])


def option_text(option: str) -> str:
    """An option without its label."""
    return _LABEL.sub("", option, count=1).strip() if _LABEL.match(option) else option.strip()
