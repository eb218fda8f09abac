"""Cuts a text that comes in pieces before the first stop string in it.

What could be the beginning of a stop string is held back until more has come; stop "###", pieces "a#" "#b" "c###d"::

    add("a#") -> "a"    add("#b") -> "##b"    add("c###d") -> "c"    add("e") -> ""    rest() -> ""

Invariant: all that ``add`` and ``rest`` returned, joined, is the whole text up to its first stop string.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string stops nothing"
        self.stops = stops
        self._held = ""
        self.stopped = False

    def add(self, piece: str) -> str:
        """What may be told now."""
        if self.stopped:
            return ""
        self._held += piece
        found = [at for stop in self.stops if (at := self._held.find(stop)) >= 0]
        self.stopped = bool(found)
        told = min(found) if found else len(self._held) - max(map(self._begun, self.stops), default=0)
        out, self._held = self._held[:told], "" if found else self._held[told:]
        return out

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        out, self._held = self._held, ""
        return out

    def _begun(self, stop: str) -> int:
        """The most characters at the end that ``stop`` begins with."""
        sizes = range(min(len(stop) - 1, len(self._held)), 0, -1)
        return next((size for size in sizes if self._held.endswith(stop[:size])), 0)


def up_to_stop(text: str, stops: Sequence[str]) -> str:
    cut = StopText(stops)
    return cut.add(text) + cut.rest()
