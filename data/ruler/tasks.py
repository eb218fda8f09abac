"""RULER's thirteen standard configurations, and one sample of any of them at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal

import orjson

from ...rewards.qa_metrics import STRING_MATCH_ALL, STRING_MATCH_PART
from .document_qa import document_qa, read_hotpotqa, read_squad
from .length import LengthError
from .needles import Niah, niah, variable_tracking
from .sample import CountTokens, Essay, Haystack, MakeSample, RulerError
from .word_counts import common_words, frequent_words
from .wording import Wording, load_wording

_SEAMS = 2
"""Tokens by which a text may be longer than its parts, one for each seam between a document and what is around it."""


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


class Maker:
    """Holds what is read once: wording, essays, corpora.

    Args:
        prompt_tokens: of the prompt around a sample.

    Raises:
        MemAgentError: one of the files cannot be used.
    """

    def __init__(
        self, count_tokens: CountTokens, prompt_tokens: int, seed: int, *, essays: Sequence[Path] = (),
        squad: Path | None = None, hotpotqa: Path | None = None, wording: Path | None = None,
    ) -> None:
        self._count = count_tokens
        self._prompt_tokens = prompt_tokens
        self._seed = seed
        texts = load_wording(wording) if wording else Wording()
        self._haystack = Haystack(texts, read_essay(essays, texts))
        self._corpora = {
            raw: read(path, Random(f"{seed}/{raw}"))
            for raw, read, path in (("squad", read_squad, squad), ("hotpotqa", read_hotpotqa, hotpotqa)) if path
        }

    def make(self, wanted: tuple[str, int, int]) -> tuple[int, bytes]:
        """The length in tokens of a sample (task, length, index), and the sample as JSON; from a generator of its own,
        seeded by ``seed/task/length/index``.

        Raises:
            RulerError: the task does not fit the length, or there are not enough questions.
        """
        name, length, index = wanted
        task, haystack = TASKS[name], self._haystack
        before, behind = haystack.wording.around(task.words, task.kind)
        around = self._prompt_tokens + task.reply_tokens
        if before + behind:
            around += self._count(before) + self._count(behind) + _SEAMS
        if task.raw:
            corpus = self._corpora[task.raw]
            if index >= len(corpus.questions):
                raise RulerError(f"{name}: {corpus.name} has {len(corpus.questions)} questions; lower --samples")
            haystack = replace(haystack, corpus=corpus, question=corpus.questions[index])
        rng = Random(f"{self._seed}/{name}/{length}/{index}")
        try:
            sample = task.make(rng, length, self._count, replace(haystack, reserved=around))
        except LengthError as error:
            raise RulerError(f"{name} at {length} tokens, sample {index}: {error}; choose a longer length") from None
        origin = {"prompt_tokens": self._prompt_tokens, "wording": haystack.wording.name, "seed": self._seed}
        entry = replace(
            sample, context=f"{before}{sample.context}{behind}", index=index, task=name, length=length,
            tokens_to_generate=task.reply_tokens, metric=task.metric, extra={**sample.extra, **origin},
        )
        return sample.length_tokens, orjson.dumps(entry)


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
            texts.append(str(orjson.loads(path.read_bytes())["text"]) if is_json else path.read_text("utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RulerError(f"--haystack {path}: not UTF-8 text, or JSON with a field `text` ({error})") from None
    text = " ".join(" ".join(texts).split())
    if not text:
        raise RulerError(f"--haystack {' '.join(map(str, paths))}: no text in there; name files with text")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Essay(text, f"{'+'.join(path.name for path in paths)} sha256:{digest}")
