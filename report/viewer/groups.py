"""A folder's traces as groups of siblings, one file in memory at a time.

A place is a rollout or an evaluated length; a question of it is a group. Of two lines with one id in a file the later
one counts, as an evaluation that was resumed leaves them; groups of a place are in the order of their questions'
numbers.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from ...evaluation.results import length_order
from ...evaluation.summary import main_metric
from ...hooks.traces import FOLDER, Trace, TraceDocument, TraceError, TraceTurn, read_traces, trace_files


class Place(NamedTuple):
    """Where a trajectory belongs."""

    rollout: int = -1
    """-1: none."""
    length: str = ""

    @property
    def order(self) -> tuple[Any, ...]:
        """Rollouts by number, then lengths by number."""
        return self.rollout, length_order(self.length)

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


def files_of(folder: Path) -> list[Path]:
    """Those that have a trajectory. Raises TraceError where none has."""
    files = [file for file in trace_files(folder) if file.stat().st_size]
    if not files:
        raise TraceError(f"{folder}: its {FOLDER}/*.jsonl hold no trajectory: one was larger than all that is "
                         "kept, or the run was killed before one was kept")
    return files


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
        place = Place(-1 if trace.rollout is None else trace.rollout, trace.length or "")
        grouped[place, trace.group or trace.question_id or trace.id].append(sibling)
    groups = [Group(*key, found) for key, found in grouped.items()]
    return sorted(groups, key=lambda group: (group.place.order, length_order(group.number)))


def log_probs_of(turn: TraceTurn) -> list[float]:
    """Of each of the reply's tokens; none where they are not those of the reply, or one is not a number."""
    known = [value for value in turn.log_probs if value is not None]
    whole = len(turn.pieces) == len(turn.log_probs) == len(known) and "".join(turn.pieces) == turn.reply
    return known if whole else []
