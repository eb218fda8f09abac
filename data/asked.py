"""A question that a reader of raw chat histories found, not built yet.

What a split is drawn by, the id and the history, is known at once; the question itself is built where it is kept, so
that drawing a split of 2.7 GB of histories builds none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..sessions.records import HistoryQuestion


class BadQuestion(ValueError):
    """A raw entry that is no question about a history, and why: one line without the entry's own texts."""


class LeftOut(Exception):
    """A question that the converter skips on purpose, and why; counted by that text, and no error."""


@dataclass(frozen=True, slots=True)
class Asked:
    where: str
    """Which entry of the input it is, for messages."""
    id: str
    history: str
    """Questions with the same text here are about one history."""
    build: Callable[[], HistoryQuestion]
    """Raises BadQuestion, LeftOut."""


def unreadable(where: str, problem: str) -> Asked:
    """An entry that could not even be read."""

    def build() -> HistoryQuestion:
        raise BadQuestion(problem)

    return Asked(where, where, where, build)


def text_of(entry: Mapping[str, Any], *names: str) -> str:
    """The text, or number, of the first of these fields that holds one, without blanks around; "" where none does."""
    for name in names:
        value = entry.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value != value:
            continue
        if text := str(value).strip():
            return text
    return ""


def needed(entry: Mapping[str, Any], *names: str) -> str:
    """The same. Raises BadQuestion where there is none."""
    if text := text_of(entry, *names):
        return text
    raise BadQuestion(f"no {' or '.join(names)}")


def unique(names: Collection[str]) -> list[str]:
    """The names, where one repeats with its count behind it: a a b -> a a#2 b; a count that is a name is not taken."""
    taken, found = set(names), list[str]()
    for name in names:
        fresh, count = name, 1
        while fresh in found or (count > 1 and fresh in taken):
            count += 1
            fresh = f"{name}#{count}"
        found.append(fresh)
    return found
