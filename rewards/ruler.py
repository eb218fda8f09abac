"""RULER's two metrics: how many of the expected strings stand in the reply.

======================  ==========================================  ==================
metric                  of one reply                                tasks
======================  ==========================================  ==================
``string_match_all``    fraction of the expected strings in it      niah_*, vt, cwe, fwe
``string_match_part``   1 if any of the expected strings is in it   qa_1, qa_2
======================  ==========================================  ==================

A string is "in" a reply as a run of characters, in any case, with no regard to words: "12" is in "3126". The reply is
first stripped, and control characters count as newlines. A task's score is the mean over ALL its samples, those
without a reply as 0; RULER prints it times 100, rounded to two decimals.

Invariants: between 0 and 1; an empty reply scores 0; part >= all.

Worked example, expected ["Ann Lee", "Bob"]: the reply "ann lee and Bo" scores all = 0.5, part = 1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..system.errors import MemAgentError

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
    """The reply's score by the metric that its file names.

    Raises MemAgentError where there is no such metric, ValueError where an answer is empty.
    """
    if metric not in METRICS:
        raise MemAgentError(f"no RULER metric {metric!r:.80}; allowed: {', '.join(METRICS)}")
    if isinstance(answers, str) or not answers or not all(answers):  # an empty answer would be in every reply
        raise ValueError(f"answers must be a list of non-empty strings, got {answers!r}")
    reply = _CONTROL.sub("\n", (prediction or "").strip()).strip().lower()
    found = [answer.lower() in reply for answer in answers]
    return sum(found) / len(found) if metric == STRING_MATCH_ALL else float(any(found))
