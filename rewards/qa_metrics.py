"""Answer metrics for evaluation: exact match, token F1, containment; each the maximum over ALL golds.

Texts are compared in SQuAD form: lower case, ASCII punctuation and the articles a/an/the removed, whitespace
collapsed (Rajpurkar et al. 2016). A gold that this would erase ("A", "The The") keeps its articles, and so does the
prediction it is compared with; a gold of punctuation only never matches. ``em`` and ``f1`` are SQuAD's; ``sub_em``
also removes the punctuation of any script and unifies composed and decomposed letters::

    prediction           gold          em   sub_em
    1939-1945            1939–1945     0    1
    《红楼梦》           红楼梦        0    1

=================  ==========================================================================================
``em``             the two forms are equal
``f1``             harmonic mean of token precision and recall; yes, no and noanswer match only themselves
``sub_em``         the gold's words stand in the prediction, in order and side by side
``sub_em_legacy``  one form is a substring of the other: the published RULER-HQA accuracy, for old tables only
=================  ==========================================================================================

Invariant: an empty prediction (or None, or one that is only articles and punctuation) scores 0 everywhere. The
published containment gave it 1, and it gives "u" for "Mumbai" 1::

    prediction           gold        em   f1    sub_em  sub_em_legacy
    the                  Mumbai      0    0     0       0
    u                    Mumbai      0    0     0       1
    Mumbai, India        Mumbai      0    0.67  1       1
    Navi Mumbaikar       Mumbai      0    0     0       1
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
PUNCTUATION = f"{string.punctuation}−" + "".join(
    character for character in map(chr, range(0x80, 0x10000)) if unicodedata.category(character)[0] == "P")
"""Of any script, with ASCII's symbols and the minus sign."""
_NO_PUNCTUATION_OF_ANY_SCRIPT = str.maketrans("", "", PUNCTUATION)
CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})
"""Answers, in SQuAD form, that a question itself offers: their words prove nothing in a text."""


def normalise_squad(text: str, *, keep_articles: bool = False, any_script: bool = False) -> str:
    """The SQuAD form of a text; ``any_script``: as ``sub_em`` compares it. See the module docstring."""
    text = unicodedata.normalize("NFC", text) if any_script else text
    text = text.lower().translate(_NO_PUNCTUATION_OF_ANY_SCRIPT if any_script else _NO_PUNCTUATION)
    return " ".join((text if keep_articles else _ARTICLES.sub(" ", text)).split())


def score_answer(prediction: str | None, golds: Sequence[str]) -> dict[str, float]:
    """All metrics of one prediction under the keys em, f1, sub_em, sub_em_legacy."""
    return {"em": exact_match(prediction, golds), "f1": _best(_f1, prediction, golds),
            "sub_em": sub_em(prediction, golds), "sub_em_legacy": sub_em_legacy(prediction, golds)}


def exact_match(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 if the prediction equals a gold in SQuAD form."""
    return _best(lambda pred, gold: float(pred == gold), prediction, golds)


def sub_em(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 if all words of a gold stand in the prediction, in order and side by side."""
    return _best(lambda pred, gold: float(f" {gold} " in f" {pred} "), prediction, golds, any_script=True)


def sub_em_legacy(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 if gold or prediction is a substring of the other (MemAgent's published accuracy, minus its empty case)."""
    return _best(lambda pred, gold: float(gold in pred or pred in gold), prediction, golds)


def _best(
    metric: Callable[[str, str], float], prediction: str | None, golds: Sequence[str], any_script: bool = False
) -> float:
    """The maximum of ``metric`` over all golds; pairs with an empty side score 0 and never reach the metric."""
    best = 0.0
    for gold in golds:
        articles = not normalise_squad(gold, any_script=any_script)
        said, form = (normalise_squad(text, keep_articles=articles, any_script=any_script)
                      for text in (prediction or "", gold))
        if said and form:
            best = max(best, metric(said, form))
    return best


def _f1(pred: str, gold: str) -> float:
    """Token F1 with HotpotQA's guard for yes, no and noanswer."""
    return 0.0 if pred != gold and {pred, gold} & CLOSED_ANSWERS else word_f1(pred.split(), gold.split())


def word_f1(words: Sequence[str], gold: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, as multisets."""
    shared = (Counter(words) & Counter(gold)).total()
    return 2 * shared / (len(words) + len(gold)) if shared else 0.0


# --- RULER -----------------------------------------------------------------------------------------------------------

STRING_MATCH_ALL = "string_match_all"
STRING_MATCH_PART = "string_match_part"
FIRST_GOLD = "sub_em_first_gold"
"""MemAgent's score of RULER's QA tasks, beside RULER's own."""

_NIAH = ("single_1", "single_2", "single_3", "multikey_1", "multikey_2", "multikey_3", "multivalue", "multiquery")
TASKS = (*(f"niah_{name}" for name in _NIAH), "vt", "cwe", "fwe", "qa_1", "qa_2")
"""The thirteen, in RULER's order."""
MEMAGENT_TASKS = tuple(name for name in TASKS if name not in ("cwe", "qa_1", "qa_2"))
"""The ten that MemAgent's out-of-distribution table averages (arXiv 2507.02259v1); it shows qa_1 apart."""

_CONTROL = re.compile(r"[\x00-\x1f]")
METRICS = (STRING_MATCH_ALL, STRING_MATCH_PART)


def score(metric: str, prediction: str | None, answers: Sequence[str]) -> float:
    """The reply's score by the metric that its file names: how many of the expected strings stand in it.

    ======================  ==========================================  ==================
    metric                  of one reply                                tasks
    ======================  ==========================================  ==================
    ``string_match_all``    fraction of the expected strings in it      niah_*, vt, cwe, fwe
    ``string_match_part``   1 if any of the expected strings is in it   qa_1, qa_2
    ======================  ==========================================  ==================

    A string is "in" a reply as a run of characters, in any case, with no regard to words: "12" is in "3126". The reply
    is first stripped, and control characters count as newlines. A task's score is the mean over ALL its samples, those
    without a reply as 0; RULER prints it times 100, rounded to two decimals.

    Invariants: between 0 and 1; an empty reply scores 0; part >= all.

    Worked example, expected ["Ann Lee", "Bob"]: the reply "ann lee and Bo" scores all = 0.5, part = 1.
    """
    reply = _CONTROL.sub("\n", (prediction or "").strip()).strip().lower()
    found = [bool(answer) and answer.lower() in reply for answer in answers]
    return {STRING_MATCH_ALL: sum(found) / len(found), STRING_MATCH_PART: float(any(found))}[metric]
