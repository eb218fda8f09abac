"""Paragraphs, and how their sentences become one text.

A worked example, sentences of two rows and the text they make::

    ("He saw", ' "Go!', '" twice.')  ->  He saw "Go!" twice.        HotpotQA: blanks come with the sentences
    ("Ann is.", "She was.")          ->  Ann is. She was.           2WikiMultiHopQA: they do not
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Paragraph:
    title: str | None
    sentences: tuple[str, ...]
    gold: bool = True
    """Whether the answer is made from it; True of all where nobody marked any."""

    @property
    def document(self) -> str:
        """Title and sentences as the data has them."""
        text = "".join(self.sentences)
        return text if self.title is None else f"{self.title}\n{text}"


def spaced_documents(paragraphs: Sequence[Paragraph]) -> list[str]:
    """The documents of one row's paragraphs, with blanks between sentences.

    HotpotQA's sentences begin with theirs, but for those that stood without one (``Go!`` before ``" is``); 2Wiki's
    bring none. So the majority of the row's joints says whether its text is whole as it is, or needs blanks.
    """
    joints = [
        _is_apart(before, after)
        for paragraph in paragraphs for before, after in pairwise(filter(None, paragraph.sentences))
    ]
    if 2 * sum(joints) >= len(joints):
        return [paragraph.document for paragraph in paragraphs]
    return [replace(paragraph, sentences=_spaced(paragraph.sentences)).document for paragraph in paragraphs]


def _spaced(sentences: Iterable[str]) -> tuple[str, ...]:
    spaced: list[str] = []
    for sentence in filter(None, sentences):
        spaced.append(sentence if not spaced or _is_apart(spaced[-1], sentence) else f" {sentence}")
    return tuple(spaced)


def _is_apart(before: str, after: str) -> bool:
    return before[-1].isspace() or after[0].isspace()
