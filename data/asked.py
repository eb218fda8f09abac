"""A question that a reader of raw chat histories found, not built yet.

What a split is drawn by, the id and the history, is known at once; the question itself is built where it is kept, so
that drawing a split of 2.7 GB of histories builds none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..sessions.records import HistoryQuestion

_QUESTIONS = 1024


class BadQuestion(ValueError):
    """A raw entry that is no question about a history, and why: one line without the entry's own texts."""


class LeftOut(Exception):
    """A question that the converter leaves out on purpose, and why; counted by that text, and no error."""


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


def bounded(found: Iterable[Asked]) -> Iterator[Asked]:
    """The same, with all but the first 1,024 questions about a history as bad ones.

    For formats that have a history once and its questions apart: a row is written with all of its history, so what a
    short list of questions makes of a long history has no bound but this. LoCoMo asks at most 260 about one.
    """
    counts = Counter[str]()
    for asked in found:
        counts[asked.history] += 1
        yield asked if counts[asked.history] <= _QUESTIONS else replace(asked, build=_one_too_many)


def _one_too_many() -> NoReturn:
    raise BadQuestion(f"its history has {_QUESTIONS} questions already; give it again, under another name")


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
    given, seen, found = set(names), dict[str, int](), []
    for name in names:
        count = seen.get(name, 0) + 1
        while count > 1 and f"{name}#{count}" in given:
            count += 1
        seen[name] = count
        found.append(name if count == 1 else f"{name}#{count}")
    return found
