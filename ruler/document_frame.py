"""What a wording has around a document: part of what the model reads, and of the length that a file promises.

Example, ``cwe_document`` being ``"Words:\\n{document}"``::

    context "1. tea 2. oak"  ->  "Words:\\n1. tea 2. oak"
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .sample import CountTokens, RulerSample
from .tasks import NIAH
from .wording import Sentences

_SEAMS = 2
"""Tokens by which a text may be longer than its two parts, one for each seam."""


@dataclass(frozen=True, slots=True)
class Frame:
    before: str
    behind: str

    def tokens(self, count_tokens: CountTokens) -> int:
        """Of a budget, to be left for it."""
        text = self.before + self.behind
        return count_tokens(self.before) + count_tokens(self.behind) + _SEAMS if text else 0

    def around(self, sample: RulerSample) -> RulerSample:
        return replace(sample, context=f"{self.before}{sample.context}{self.behind}")


def frame_of(task: str, wording: Sentences) -> Frame:
    """That of one of ``TASKS``."""
    form = NIAH.get(task)
    if form is None:
        name, kind = task.partition("_")[0], ""
    else:
        name, kind = "niah_one" if form.queries * form.values == 1 else "niah_many", form.value
    before, _, behind = getattr(wording, f"{name}_document").partition("{document}")
    return Frame(before.format(kind=kind, kinds=f"{kind}s"), behind.format(kind=kind, kinds=f"{kind}s"))
