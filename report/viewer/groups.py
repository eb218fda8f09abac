"""A folder's traces as groups of siblings, one file in memory at a time.

A place is a rollout or an evaluated length; a question of it is a group. Tokens are held as lengths and hundredths of
log-probabilities, since as Python strings they would take thirty times their size on disk::

    pieces ("met", "al", "")  log_probs (-0.21, -0.03, -0.001)   ->   Tokens(lengths [3, 2, 0], hundredths [21, 3, 0])

Invariants:
- of two lines with one id in a file the later one counts, as an evaluation that was resumed leaves them;
- groups of a place are in the order of their questions' numbers.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import orjson

from ...traces.read_traces import FOLDER, read_traces, trace_files
from ...traces.trace import Trace, TraceDocument, TraceError, TraceTurn

MOST_HUNDREDTHS = 65_535


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a trajectory belongs; rollouts in their order, then lengths in theirs."""

    rollout: int = -1
    """-1: none."""
    number: int = -1
    """The length's, where it is one."""
    length: str = ""

    @classmethod
    def of(cls, trace: Trace) -> Place:
        length = trace.length or ""
        return cls(-1 if trace.rollout is None else trace.rollout, int(length) if _counts(length) else -1, length)

    @property
    def label(self) -> str:
        after = f"rollout {self.rollout}" if self.rollout >= 0 else ""
        if not self.length:
            return after or "trajectories"
        return f"length {self.length}" + (f" after {after}" if after else "")


@dataclass(frozen=True, slots=True)
class Tokens:
    """A reply's tokens; the lengths are those of a browser, in units of UTF-16."""

    lengths: array[int]
    hundredths: array[int]
    mean: float
    lowest: float


@dataclass(frozen=True, slots=True)
class Sibling:
    """A trajectory; the pieces of its turns are in ``tokens``, one for each turn, None where none are kept."""

    trace: Trace
    tokens: tuple[Tokens | None, ...]
    document: TraceDocument | None
    content: str
    """A hash of the document's sections; empty without one."""


@dataclass(frozen=True, slots=True)
class Group:
    place: Place
    name: str
    siblings: tuple[Sibling, ...]
    """In the order of their samples."""

    @property
    def first(self) -> Trace:
        return self.siblings[0].trace


def read_groups(folder: Path) -> Iterator[Group]:
    """All groups of a run or of results, file by file. Raises TraceError: none, or none that can be read."""
    for file in trace_files(folder):
        yield from groups_of(file)


def nothing_kept(folder: Path) -> TraceError:
    return TraceError(f"{folder}: its {FOLDER}/*.jsonl hold no trajectory: one was larger than all that is kept, "
                      "or the run was killed before one was kept")


def groups_of(file: Path) -> list[Group]:
    documents: dict[str, tuple[TraceDocument, str]] = {}
    siblings: dict[str, Sibling] = {}
    for record in read_traces(file):
        if isinstance(record, TraceDocument):
            documents[record.id] = record, hashlib.sha256(orjson.dumps(record.sections)).hexdigest()
        else:
            siblings[record.id] = _sibling(record, *documents.get(record.document or "", (None, "")))
    grouped: dict[tuple[Place, str], list[Sibling]] = {}
    for sibling in siblings.values():
        trace = sibling.trace
        grouped.setdefault((Place.of(trace), trace.group or trace.question_id or trace.id), []).append(sibling)
    ordered = sorted(grouped.items(), key=lambda item: (item[0][0], natural(item[0][1])))
    return [
        Group(place, name, tuple(sorted(found, key=lambda s: s.trace.sample))) for (place, name), found in ordered
    ]


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts q2 before q10."""
    return [(0, int(part), "") if _counts(part) else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part]


def _counts(text: str) -> bool:
    """Whether it is a number."""
    return text.isdecimal()


def before_of(turns: tuple[TraceTurn, ...], number: int) -> str:
    """The memory that a turn started from: as it was shown, or what the turn before left."""
    return turns[number].shown_memory or (turns[number - 1].memory if number else "")


def _sibling(trace: Trace, document: TraceDocument | None, content: str) -> Sibling:
    tokens = tuple(_tokens(turn) for turn in trace.turns)
    slim = tuple(replace(turn, pieces=(), log_probs=()) for turn in trace.turns)
    return Sibling(replace(trace, turns=slim), tokens, document, content)


def _tokens(turn: TraceTurn) -> Tokens | None:
    """None where they are not those of the reply, as JSON has no number for the logarithm of 0."""
    log_probs = [value for value in turn.log_probs if value is not None]
    if not log_probs or not len(turn.pieces) == len(turn.log_probs) == len(log_probs):
        return None
    if "".join(turn.pieces) != turn.reply:
        return None
    lengths = array("I", [len(p) if p.isascii() else len(p.encode("utf-16-le")) // 2 for p in turn.pieces])
    hundredths = array("H", [min(MOST_HUNDREDTHS, max(0, round(-100 * p))) for p in log_probs])
    return Tokens(lengths, hundredths, fmean(log_probs), min(log_probs))
