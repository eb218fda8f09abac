"""RULER's thirteen standard configurations, and the essays that some of them hide their needles in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import orjson

from ...rewards.qa_metrics import STRING_MATCH_ALL, STRING_MATCH_PART
from .document_qa import document_qa
from .needles import Niah, niah, variable_tracking
from .sample import Essay, MakeSample, RulerError
from .word_counts import common_words, frequent_words
from .wording import Wording


@dataclass(frozen=True, slots=True)
class RulerTask:
    """``make(rng, budget, count_tokens, haystack)`` makes one sample, without what is around its document."""

    make: MakeSample
    reply_tokens: int
    """How long a reply may be (``tokens_to_generate`` in ``data/synthetic/constants.py``, c3f5e3b)."""
    words: str
    """What its texts in a wording begin with."""
    metric: str = STRING_MATCH_ALL
    """How a reply is scored."""
    raw: Literal["squad", "hotpotqa"] | None = None
    """The file that it is made from, if any."""
    essay: bool = False
    kind: str = ""
    """Of the values that are asked for."""


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
    **{name: RulerTask(partial(niah, form), 128, form.words, essay=form.haystack == "essay", kind=form.value)
       for name, form in NIAH.items()},
    "vt": RulerTask(partial(variable_tracking, 4), 30, "vt"),
    "cwe": RulerTask(common_words, 120, "cwe"),
    "fwe": RulerTask(frequent_words, 50, "fwe"),
    "qa_1": RulerTask(document_qa, 32, "qa", STRING_MATCH_PART, raw="squad"),
    "qa_2": RulerTask(document_qa, 32, "qa", STRING_MATCH_PART, raw="hotpotqa"),
}


def read_essay(paths: Sequence[Path], wording: Wording) -> Essay:
    """The files' text with every run of blanks and newlines as one blank; the wording's noise without files.

    Raises:
        RulerError: a file cannot be read, or there is no text in them.
    """
    if not paths:
        return Essay(wording.texts["noise"], "repeated sentences (built in, no --haystack given)")
    texts = []
    for path in paths:
        try:
            is_json = path.suffix == ".json"
            texts.append(orjson.loads(path.read_bytes())["text"] if is_json else path.read_text("utf-8"))
        except (ValueError, KeyError, TypeError) as error:
            raise RulerError(f"--haystack {path}: not UTF-8 text, or JSON with a field `text` ({error})") from None
    text = " ".join(" ".join(texts).split())
    if not text:
        raise RulerError(f"--haystack {' '.join(map(str, paths))}: no text in there; name files with text")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Essay(text, f"{'+'.join(path.name for path in paths)} sha256:{digest}")
