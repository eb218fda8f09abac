"""What a stage has written beside a question, where it is of the kind that the stage writes.

A parquet file says itself what its columns hold, and whoever has made it chose. Anything of another kind is as if it
were not there::

    similarities [0.5, None]    numbers [0.5, None]     whole_numbers None
    similarities ["0.5"]        numbers None            whole_numbers None
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def numbers(row: Mapping[str, Any], name: str) -> list[float | None] | None:
    """A list of numbers, some of which may be missing."""
    values = listed(row, name)
    good = values is not None and all(value is None or isinstance(value, int | float) for value in values)
    return list(values or ()) if good else None


def whole_numbers(row: Mapping[str, Any], name: str) -> list[int] | None:
    values = listed(row, name)
    good = values is not None and all(type(value) is int and value >= 0 for value in values)
    return list(values or ()) if good else None


def positions(row: Mapping[str, Any], name: str, count: int) -> list[int]:
    """Those in a list that are positions of ``count`` sessions."""
    return [value for value in listed(row, name) or () if type(value) is int and 0 <= value < count]


def texts(row: Mapping[str, Any], name: str) -> list[str]:
    return [str(value) for value in listed(row, name) or () if value is not None]


def text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def listed(row: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    value = row.get(name)
    return value if isinstance(value, list | tuple) else None
