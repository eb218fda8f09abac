r"""The training reward: 1.0 when the boxed answer equals a gold answer after normalisation, else 0.0.

Two normalisations, applied to the prediction and to every gold alike:

``answer`` (default) forgives what says nothing about the answer. It lower-cases, unwraps ``\text{..}`` and its
relatives, turns LaTeX escapes into the characters they print, straightens quotes and dashes, collapses whitespace,
and drops punctuation at both ends and leading articles. It keeps everything between the ends, signs, and the symbols
``% # & @ / + $``, so that ``3.5`` is not ``35``, ``-5`` is not ``5`` and ``C#`` is not ``C``::

    \boxed{\text{Paris}}      Paris           1.0
    \boxed{Paris.}            Paris           1.0
    \boxed{the Beatles}       Beatles         1.0
    \boxed{35\%}              35%             1.0
    \boxed{Paris, France}     Paris           0.0    no partial credit
    \boxed{The}               the             1.0    an article alone is a word

``published`` (``TASK_ARGS=reward=published``) is MemAgent's released rule (verl/utils/reward_score/hotpotqa.py): only
the last 300 characters are searched, by ``published_boxed``, thinking among them, and whitespace and some LaTeX are
deleted. All examples above except the last score 0.0 under it, apart from ``35\%``, which it turns into ``35`` (also
0.0 against the gold ``35%``). An empty box equals a gold of nothing.

``published_f1`` (ReMemR1's option ``reward_metric=f1`` in the same file) finds the box in the same way and gives the
F1 of lower-case words as they stand between blanks, nothing else normalised::

    \boxed{The Beatles}       the beatles     1.0
    \boxed{Beatles}           the beatles     2/3
    \boxed{beatles.}          the beatles     0.0

Before training asks for any of them, a reply's thinking and the blanks at its ends are gone (``Trajectory.answer``).
All: the maximum over ALL golds counts. ``answer``: text before the last ``</think>`` is not searched, an empty
prediction scores 0.0, and a gold that normalises to nothing never matches.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from .answers import after_thinking, last_boxed, published_boxed
from .qa_metrics import word_f1

PUBLISHED_WINDOW = 300


def boxed_exact_match(response: str, golds: Sequence[str], style: str = "answer") -> float:
    """1.0 if the last boxed answer of ``response`` equals any gold under ``style`` (answer, published), else 0.0; or
    their best word F1 (published_f1)."""
    assert golds and not isinstance(golds, str), f"golds must be a non-empty list of strings, got {golds!r}"
    if style == "answer":
        prediction = last_boxed(after_thinking(response))
        wanted = {normalise_answer(gold) for gold in golds} - {""}
        return float(prediction is not None and normalise_answer(prediction) in wanted)
    prediction = published_boxed(response[-PUBLISHED_WINDOW:].lower())
    if style == "published":
        return float(prediction is not None and normalise_published(prediction) in map(normalise_published, golds))
    return max(word_f1((prediction or "").split(), gold.lower().split()) for gold in golds)


# --- answer ----------------------------------------------------------------------------------------------------------
# A wrapper around text, or a bare group that is no argument of a command, a power or an index.
_GROUP = re.compile(
    r"(?:\\(?:text(?:bf|it|rm|sf|tt|sc|normal)?|math(?:rm|bf|it|sf|tt)|emph|mbox|operatorname)\s*|(?<![\w}^\\]))"
    r"\{([^{}]*)\}"
)
_SIZING = re.compile(r"\\(?:left|right)(?![a-z])")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)")
_SPACES = re.compile(r"\\[,;: ]|~")
_ESCAPED = re.compile(r"\\([$%&#_{}])")
_STRAIGHT = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "−": "-", "‐": "-", "‑": "-"})
_MEANINGFUL_ENDS = frozenset("%#&@/-")  # punctuation by its Unicode category, but part of an answer
_ARTICLE = re.compile(r"(?:a|an|the)\s+(?=\S)")


def normalise_answer(text: str) -> str:
    r"""The form compared by style ``answer``; the module docstring says what it forgives.

    >>> normalise_answer(r"\textbf{The  Beatles}.")
    'beatles'
    """
    text = unicodedata.normalize("NFC", text).lower().replace("\\!", "")
    while (inner := _GROUP.sub(r"\1", text)) != text:
        text = inner
    text = _SIZING.sub("", _DEGREES.sub("°", _SPACES.sub(" ", text)))
    text = " ".join(_ESCAPED.sub(r"\1", text).translate(_STRAIGHT).split())
    return _bare(text)


def _bare(text: str) -> str:
    """Without punctuation at the ends and without leading articles, whichever comes first."""
    start, end = 0, len(text)
    while start < end and _drops(text[end - 1]):
        end -= 1
    while True:
        while start < end and _drops(text[start]) and not _starts_number(text, start):
            start += 1
        article = _ARTICLE.match(text, start, end)
        if not article:
            return text[start:end]
        start = article.end()


def _drops(char: str) -> bool:
    return char.isspace() or (unicodedata.category(char).startswith("P") and char not in _MEANINGFUL_ENDS)


def _starts_number(text: str, at: int) -> bool:
    """``.5`` keeps its point."""
    return text[at] == "." and text[at + 1 : at + 2].isdigit()


# --- published -------------------------------------------------------------------------------------------------------
_PUBLISHED_STEPS = (  # the order matters: the doubled backslash goes before the commands that need a single one
    ("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", ""), ("\\right", ""),
    ("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""), ("\\%", ""), (" .", " 0."), ("{.", "{0."), (" ", ""),
)  # fmt: skip


def normalise_published(text: str) -> str:
    """The form compared by style ``published``: lower case, then MemAgent's deletions in their order."""
    text = text.lower()
    for old, new in _PUBLISHED_STEPS:
        text = text.replace(old, new)
    return text
