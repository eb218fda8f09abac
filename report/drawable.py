"""Which values of a metric can be drawn and averaged: numbers whose sums, squares and axes are numbers, too.

A diverged run writes ``null`` for what was no number, and perhaps 1e308; both are gaps, and the plot says so.
"""

from __future__ import annotations

LARGEST = 1e30


def is_drawable(value: float) -> bool:
    return abs(value) <= LARGEST
