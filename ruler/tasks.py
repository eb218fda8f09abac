"""RULER's thirteen standard configurations.

``TASKS[name].make(rng, budget, count_tokens, haystack)`` makes one sample; ``raw`` names the file it is made from, if
any; ``metric`` is how a reply is scored, ``reply_tokens`` how long it may be (``tokens_to_generate`` in
``data/synthetic/constants.py``, c3f5e3b).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from ..rewards.qa_metrics import STRING_MATCH_ALL, STRING_MATCH_PART
from .common_words import common_words
from .document_qa import document_qa
from .frequent_words import frequent_words
from .niah import Niah, niah
from .sample import MakeSample
from .variable_tracking import variable_tracking

VT_HOPS = 4


@dataclass(frozen=True, slots=True)
class RulerTask:
    make: MakeSample
    reply_tokens: int
    metric: str = STRING_MATCH_ALL
    raw: Literal["squad", "hotpotqa"] | None = None
    essay: bool = False


NIAH = {
    "niah_single_1": Niah("noise"),
    "niah_single_2": Niah("essay"),
    "niah_single_3": Niah("essay", value="uuid"),
    "niah_multikey_1": Niah("essay", keys=4),
    "niah_multikey_2": Niah("needles"),
    "niah_multikey_3": Niah("needles", key="uuid", value="uuid"),
    "niah_multivalue": Niah("essay", values=4),
    "niah_multiquery": Niah("essay", keys=4, queries=4),
}

TASKS: dict[str, RulerTask] = {
    **{name: RulerTask(partial(niah, name, form), 128, essay=form.haystack == "essay") for name, form in NIAH.items()},
    "vt": RulerTask(partial(variable_tracking, "vt", VT_HOPS), 30),
    "cwe": RulerTask(partial(common_words, "cwe"), 120),
    "fwe": RulerTask(partial(frequent_words, "fwe"), 50),
    "qa_1": RulerTask(partial(document_qa, "qa_1"), 32, STRING_MATCH_PART, raw="squad"),
    "qa_2": RulerTask(partial(document_qa, "qa_2"), 32, STRING_MATCH_PART, raw="hotpotqa"),
}
