r"""``TASK=qa``: one answer, right if it equals any of the golds; and ``TASK=ruler``, RULER's tasks.

    reply "... \boxed{the Beatles}", gold Beatles    reward: answer 1    metrics: em 1, f1 1, sub_em 1, sub_em_legacy 1

The training reward: 1.0 when the boxed answer equals a gold answer after normalisation, else 0.0.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..rewards import qa_metrics
from ..rewards.answers import after_thinking, last_boxed, published_boxed, the_answer_is
from ..rewards.qa_metrics import STRING_MATCH_ALL, STRING_MATCH_PART, score, word_f1
from .interface import Task, TaskRow

READERS: Mapping[str, Callable[[str], Any]] = {"boxed": last_boxed, "the_answer_is": the_answer_is, "whole": str}
"""The last box; what follows the last "the answer is" (MemAgent's evaluation); all of the reply."""


@dataclass(frozen=True)
class QaSettings:
    answer: Literal["boxed", "the_answer_is", "whole"] = "boxed"
    """How evaluation reads an answer."""
    reward: Literal["answer", "published", "published_f1"] = "answer"
    """The rule by which an answer is right in training (above)."""


class QuestionAnswering(Task):
    Settings: ClassVar[type] = QaSettings
    headline = "sub_em"

    @property
    def reads_whole(self) -> bool:
        return bool(self.settings.answer == "whole")

    def read_answer(self, reply: str) -> str:
        return READERS[self.settings.answer](reply) or ""

    def solution(self, row: TaskRow) -> str:
        return super().solution(row) or (f"\\boxed{{{row.golds[0]}}}" if row.golds else "")

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": boxed_exact_match(reply, row.golds, self.settings.reward) if row.golds else 0.0}

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        """``sub_em`` is 1 for whatever the reward's rule ``answer`` takes as the same answer."""
        found = qa_metrics.score_answer(answer, row.golds)
        same = (form := normalise_answer(answer)) and form in map(normalise_answer, row.golds)
        return found | {"sub_em": 1.0 if same else found["sub_em"]}


@dataclass(frozen=True)
class RulerSettings:
    answer: Literal["boxed", "the_answer_is", "whole"] = "whole"


class Ruler(QuestionAnswering):
    """RULER's tasks, whose answer may have several strings; ``metadata["metric"]`` says how many count.

    Evaluation files of RULER name their metric, and so this task. Evaluation reads the whole reply, as RULER does. The
    training reward is the same score of the last box: paid for the whole reply, a model would learn to name all it
    read.

    For the QA tasks evaluation also measures ``sub_em_first_gold``, with which MemAgent's table scores them: answer
    inside gold or gold inside answer, against the first gold alone (``ruler_general.py``, 76b7a65).
    """

    Settings = RulerSettings
    headline = "ruler"

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        return {"answer": score(_metric(row), last_boxed(reply), row.golds) if row.golds else 0.0}

    def metrics(self, answer: str, reply: str, row: TaskRow) -> Mapping[str, float]:
        metric = _metric(row)
        found = {"ruler": score(metric, answer, row.golds)}
        if metric == STRING_MATCH_PART:
            found[qa_metrics.FIRST_GOLD] = qa_metrics.sub_em_legacy(answer, row.golds[:1])
        return found


def _metric(row: TaskRow) -> str:
    return row.metadata.get("metric") or STRING_MATCH_ALL


# --- rules of the training reward ------------------------------------------------------------------------------------

PUBLISHED_WINDOW = 300


def boxed_exact_match(response: str, golds: Sequence[str], style: str = "answer") -> float:
    """1.0 if the last boxed answer of ``response`` equals any gold under ``style`` (answer, published), else 0.0; or
    their best word F1 (published_f1)."""
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
_STRAIGHT = {ord(mark): plain for plain, marks in {"'": "‘’‚‛′＇", '"': "“”„‟″＂", "-": "‐‑‒–—―−﹣－"}.items()
             for mark in marks}
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
        # .5 keeps its point
        while start < end and _drops(text[start]) and not (text[start] == "." and text[start + 1 :][:1].isdigit()):
            start += 1
        if not (article := _ARTICLE.match(text, start, end)):
            return text[start:end]
        start = article.end()


def _drops(char: str) -> bool:
    return char.isspace() or (unicodedata.category(char).startswith("P") and char not in _MEANINGFUL_ENDS)


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
