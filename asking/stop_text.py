"""Cuts a text that comes in pieces before the stop string that is complete first.

What could be the beginning of a stop string is held back until more has come; stop "###", pieces "a#" "#b" "c###d"::

    add("a#") -> "a"    add("#b") -> "##b"    add("c###d") -> "c"    add("e") -> ""    rest() -> ""

Each letter is looked at once, so long stop strings cost no more than short ones (Knuth, Morris and Pratt's search).

Invariant: all that ``add`` and ``rest`` returned, joined, is the text up to that stop string, whatever its pieces.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string stops nothing"
        self.stops = stops
        self._searches = [_Search(stop) for stop in stops]
        self._held = ""
        self.stopped = False

    def add(self, piece: str) -> str:
        """What may be told now."""
        if self.stopped:
            return ""
        if not self._searches:
            return piece
        text, at = self._held + piece, len(self._held)
        while at < len(text) and not self.stopped:
            for search in self._searches:
                search.take(text[at])
            at += 1
            self.stopped = any(search.complete for search in self._searches)
        begun = max(search.begun for search in self._searches if search.complete == self.stopped)
        self._held = "" if self.stopped else text[at - begun :]
        return text[: at - begun]

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        out, self._held = self._held, ""
        return out


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    if not any(stop in text for stop in stops):
        return text
    cut = StopText(stops)
    return cut.add(text) + cut.rest()


class _Search:
    """For one stop string, letter by letter, until it is complete; ``begun``: the most letters that it begins with and
    the text so far ends with."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self.begun = 0
        self._shorter = [0]
        """Of its first 1, 2, ... letters: the most, but not all, that it begins and that they end with."""
        for letter in stop[1:]:
            self._shorter.append(self._with(letter, self._shorter[-1]))

    @property
    def complete(self) -> bool:
        return self.begun == len(self._stop)

    def take(self, letter: str) -> None:
        self.begun = self._with(letter, self.begun)

    def _with(self, letter: str, begun: int) -> int:
        while begun and self._stop[begun] != letter:
            begun = self._shorter[begun - 1]
        return begun + (self._stop[begun] == letter)
