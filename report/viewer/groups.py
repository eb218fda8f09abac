"""A folder's traces as groups of siblings, one file in memory at a time.

A place is a rollout or an evaluated length; a question of it is a group. Of two lines with one id in a file the later
one counts, as an evaluation that was resumed leaves them; groups of a place are in the order of their questions'
numbers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from ...evaluation.summary import main_metric
from ...hooks.traces import FOLDER, Trace, TraceDocument, TraceError, TraceTurn, read_traces


class Place(NamedTuple):
    """Where a trajectory belongs; rollouts in their order, then lengths in theirs."""

    rollout: int = -1
    """-1: none."""
    number: int = -1
    """The length's, where it is one."""
    length: str = ""

    @classmethod
    def of(cls, trace: Trace) -> Place:
        length = trace.length or ""
        return cls(-1 if trace.rollout is None else trace.rollout, int(length) if length.isdecimal() else -1, length)

    @property
    def label(self) -> str:
        after = f"rollout {self.rollout}" if self.rollout >= 0 else ""
        if not self.length:
            return after or "trajectories"
        return f"length {self.length}" + (f" after {after}" if after else "")


class Sibling(NamedTuple):
    trace: Trace
    document: TraceDocument | None

    def sections(self, turn: TraceTurn) -> dict[int, str]:
        """The texts that a turn's prompt showed, by number; one that was not kept is empty."""
        known = dict(enumerate(self.document.sections if self.document else ()))
        return {number: known.get(number, "") for number in turn.sections}

    def before(self, at: int) -> str:
        """The memory that a turn started from: as it was shown, or what the turn before left."""
        turns = self.trace.turns
        return turns[at].shown_memory or (turns[at - 1].memory if at else "")

    @property
    def worth(self) -> float | None:
        """How good it is at a glance: in the metric that its task is judged by, else its accuracy or its reward."""
        trace = self.trace
        if metric := main_metric(trace.scores):
            return trace.scores[metric]
        return trace.reward if trace.accuracy is None else trace.accuracy


class Group(NamedTuple):
    place: Place
    number: str
    siblings: list[Sibling]
    """In the order of their samples."""

    @property
    def first(self) -> Trace:
        return self.siblings[0].trace

    @property
    def name(self) -> str:
        """The question's id; its group where the data have none."""
        return self.first.question_id or self.number


def groups_of(file: Path) -> list[Group]:
    documents: dict[str | None, TraceDocument] = {}
    siblings: dict[str, Sibling] = {}
    for record in read_traces(file):
        if isinstance(record, TraceDocument):
            documents[record.id] = record
        else:
            siblings[record.id] = Sibling(record, documents.get(record.document))
    grouped: dict[tuple[Place, str], list[Sibling]] = defaultdict(list)
    for sibling in sorted(siblings.values(), key=lambda sibling: sibling.trace.sample):
        trace = sibling.trace
        grouped[Place.of(trace), trace.group or trace.question_id or trace.id].append(sibling)
    return [Group(*key, grouped[key]) for key in sorted(grouped, key=lambda key: (key[0], natural(key[1])))]


def log_probs_of(turn: TraceTurn) -> list[float]:
    """Of each of the reply's tokens; none where they are not those of the reply, or one is not a number."""
    known = [value for value in turn.log_probs if value is not None]
    whole = len(turn.pieces) == len(turn.log_probs) == len(known) and "".join(turn.pieces) == turn.reply
    return known if whole else []


def nothing_kept(folder: Path) -> TraceError:
    return TraceError(f"{folder}: its {FOLDER}/*.jsonl hold no trajectory: one was larger than all that is kept, "
                      "or the run was killed before one was kept")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts q2 before q10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]+)", name) if part]
