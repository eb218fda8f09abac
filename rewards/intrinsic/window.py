"""The range of a term's raw values in earlier batches, by which new ones become numbers from 0 to 1.

Example, a window of the three newest values::

    extend 0.2 0.4 0.3 0.9    -> 0.4 0.3 0.9        scaled 0.6 -> (0.6 - 0.3) / (0.9 - 0.3) = 0.5
                                                    scaled 1.1 -> 1, scaled 0.1 -> 0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

EPS = 1e-8
"""Memory-R+'s epsilon, which keeps the quotient finite."""
_TOLD_APART = 1e-6
"""Values closer than this differ by rounding alone."""


class Window:
    """The newest ``size`` raw values."""

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self.values: deque[float] = deque(values, maxlen=size)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Least and greatest; None of an empty window."""
        return (min(self.values), max(self.values)) if self.values else None

    def scaled(self, raw: float) -> float:
        """(raw - least) / (greatest - least + EPS), cut to [0, 1]; 0 of a window that is empty or of equal values."""
        if self.bounds is None:
            return 0.0
        least, greatest = self.bounds
        if greatest - least < _TOLD_APART:
            return 0.0
        return min(1.0, max(0.0, (raw - least) / (greatest - least + EPS)))

    def extend(self, raws: Iterable[float]) -> None:
        self.values.extend(raws)
