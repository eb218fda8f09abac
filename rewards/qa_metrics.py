"""Answer metrics for evaluation: exact match, token F1, containment; each the maximum over ALL golds.

Texts are compared in SQuAD form: lower case, ASCII punctuation and the articles a/an/the removed, whitespace
collapsed (Rajpurkar et al. 2016). A gold that this would erase ("A", "The The") keeps its articles, and so does the
prediction it is compared with; a gold of punctuation only never matches.

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
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})
"""Answers, in SQuAD form, that a question itself offers: their words prove nothing in a text."""


def normalise_squad(text: str, *, keep_articles: bool = False) -> str:
    """The SQuAD form of a text; see the module docstring."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join((text if keep_articles else _ARTICLES.sub(" ", text)).split())


def score_answer(prediction: str | None, golds: Sequence[str]) -> dict[str, float]:
    """All metrics of one prediction under the keys em, f1, sub_em, sub_em_legacy."""
    metrics = {"em": exact_match, "f1": token_f1, "sub_em": sub_em, "sub_em_legacy": sub_em_legacy}
    return {name: metric(prediction, golds) for name, metric in metrics.items()}


def exact_match(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 if the prediction equals a gold in SQuAD form."""
    return _best(lambda pred, gold: float(pred == gold), prediction, golds)


def token_f1(prediction: str | None, golds: Sequence[str]) -> float:
    """The best token F1 over the golds, with HotpotQA's guard for yes, no and noanswer."""
    return _best(_f1, prediction, golds)


def sub_em(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 if all words of a gold stand in the prediction, in order and side by side."""
    return _best(lambda pred, gold: float(f" {gold} " in f" {pred} "), prediction, golds)


def sub_em_legacy(prediction: str | None, golds: Sequence[str]) -> float:
    """1.0 if gold or prediction is a substring of the other (MemAgent's published accuracy, minus its empty case)."""
    return _best(lambda pred, gold: float(gold in pred or pred in gold), prediction, golds)


def _best(metric: Callable[[str, str], float], prediction: str | None, golds: Sequence[str]) -> float:
    """The maximum of ``metric`` over all golds; pairs with an empty side score 0 and never reach the metric."""
    assert len(golds) and not isinstance(golds, str), f"golds must be a non-empty list of strings, got {golds!r}"
    said = {keep: normalise_squad(prediction or "", keep_articles=keep) for keep in (False, True)}
    pairs = [(said[keep], form) for keep, form in map(_form, golds)]
    return max((metric(pred, gold) for pred, gold in pairs if pred and gold), default=0.0)


def _form(gold: str) -> tuple[bool, str]:
    """Whether a gold keeps its articles, and its form."""
    form = normalise_squad(gold)
    return (False, form) if form else (True, normalise_squad(gold, keep_articles=True))


def _f1(pred: str, gold: str) -> float:
    return 0.0 if pred != gold and {pred, gold} & CLOSED_ANSWERS else word_f1(pred.split(), gold.split())


def word_f1(words: Sequence[str], gold: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, as multisets."""
    shared = (Counter(words) & Counter(gold)).total()
    return 2 * shared / (len(words) + len(gold)) if shared else 0.0
