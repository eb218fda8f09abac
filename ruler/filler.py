"""Text without answers, of any number of characters, and statements put into it.

``Filler(pieces, joint)`` is the text that the pieces make when written one after the other with ``joint`` between
them, cut after any number of characters. The pieces may never end; no more of them are drawn than asked for. Shorter
texts are beginnings of longer ones.

A cut may fall inside a word, as on a torn page. Statements are put where a line (joint "\\n") or a sentence (joint
" ") begins, never behind a torn word::

    filler = Filler(itertools.repeat("Rain. Wind."), "\\n")
    filler.text(17)                                  "Rain. Wind.\\nRain."
    place(filler.text(17), ["A=1"], [1.0], "\\n")    "Rain. Wind.\\nA=1\\nRain."
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_SENTENCE_ENDS = (". ", "! ", "? ")
_LONGEST_SENTENCE = 2000


class Filler:
    """Draws the pieces as they are needed and keeps what was drawn."""

    def __init__(self, pieces: Iterator[str], joint: str) -> None:
        self._pieces, self._joint, self._text = pieces, joint, next(pieces)

    def text(self, size: int) -> str:
        """The first ``size`` characters."""
        parts, length = [self._text], len(self._text)
        while length < size:
            piece = self._joint + next(self._pieces)
            parts.append(piece)
            length += len(piece)
        self._text = "".join(parts)
        return self._text[:size]


def place(filler: str, statements: Sequence[str], depths: Sequence[float], joint: str) -> str:
    """The filler with each statement at its depth (0 = at the start, 1 = before the last line or sentence).

    Statements keep their order, so the depths must not fall.
    """
    assert list(depths) == sorted(depths), f"depths out of order: {depths}"
    parts, done = [], 0
    for statement, depth in zip(statements, depths, strict=True):
        position = _beginning_before(filler, int(depth * len(filler)), joint)
        parts += [filler[done:position], statement, joint]
        done = position
    return "".join([*parts, filler[done:]])


def _beginning_before(filler: str, position: int, joint: str) -> int:
    """Where the line or sentence that holds ``position`` begins; a word, if no sentence ends near."""
    if joint == "\n":
        return filler.rfind("\n", 0, position) + 1
    nearest = max(filler.rfind(end, max(0, position - _LONGEST_SENTENCE), position) for end in _SENTENCE_ENDS)
    return nearest + 2 if nearest >= 0 else filler.rfind(" ", 0, position) + 1
