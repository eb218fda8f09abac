"""A folder's traces as groups of siblings, one file in memory at a time.

A place is a rollout or an evaluated length; a question of it is a group. Of two lines with one id in a file the later
one counts, as an evaluation that was resumed leaves them; groups of a place are in the order of their questions'
numbers.

A fact is one accepted answer. It stands in a text where containment (``rewards.qa_metrics.sub_em``) says so: the same
words in SQuAD form, side by side; what is marked is the stretch of the text they come from. Answers in scripts that
put no blanks between words stand wherever their characters do. A box is none of a word: silver stands in
``\\boxed{silver}``. Yes, no, noanswer and articles stand nowhere: texts hold them by chance.

Worked example, the fact "silver"; one turn a line::

    section        memory before    memory after
    Ann has it                      Ann             nothing yet
    silver.        Ann              Ann silver      entered
    Bo sleeps      Ann silver       Ann silver      held
    Bo wakes       Ann silver       Bo              lost
    Silver again   Bo               Bo              passed by
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ...asking.word_diff import WITHOUT_BLANKS, Change, Piece, word_diff
from ...evaluation.results import length_order
from ...evaluation.summary import main_metric
from ...hooks.traces import FOLDER, Trace, TraceDocument, TraceError, TraceTurn, kept_files, read_traces
from ...rewards.qa_metrics import CLOSED_ANSWERS, PUNCTUATION, normalise_squad

Span = tuple[int, int]
_BOX = "\\boxed{"
_MARKS = f"[{re.escape(PUNCTUATION)}]*"
_BETWEEN_WORDS = rf"{_MARKS}\s(?:\s|{_MARKS}\b(?:a|an|the)\b)*{_MARKS}"




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

    def events(self, at: int, facts: Sequence[Fact]) -> list[str]:
        """What became of each fact in a turn: entered, held, lost, passed (read, and not kept), or "" for nothing; in
        a final turn answered or passed."""
        turn, before, events = self.trace.turns[at], self.before(at), []
        final, sections = turn.kind == "final", [*self.sections(turn).values()]
        for fact in facts:
            if holds(turn.reply if final else turn.memory, fact):
                events.append("answered" if final else "held" if holds(before, fact) else "entered")
            elif not final and holds(before, fact):
                events.append("lost")
            else:  # an answer may come straight from a prompt with the document
                read = any(holds(text, fact) for text in (turn.recalled, *(sections or [turn.prompt])))
                events.append("passed" if read else "")
        return events

    def changes(self, at: int, facts: Sequence[Fact]) -> list[tuple[Piece, list[Span]]]:
        """What the memory gained and lost in a turn, piece by piece, each with the part of the accepted answers that
        stands in it."""
        after = self.trace.turns[at].memory
        gold, place, found = gold_spans(after, facts), 0, []
        for piece in word_diff(self.before(at), after):
            if piece.change is Change.REMOVED:
                found.append((piece, gold_spans(piece.text, facts)))
                continue
            end = place + len(piece.text)
            spans = [(max(a, place) - place, min(b, end) - place) for a, b in gold if a < end and b > place]
            found.append((piece, spans))
            place = end
        return found

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
    files = [file for file in kept_files(folder) if file.stat().st_size]
    if not files:
        raise TraceError(f"{folder}: no {FOLDER}/*.jsonl with a trajectory; give the folder of a run (SAVE_PATH) or "
                         "of an evaluation that was made with KEEP_TRAJECTORIES above 0")
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


# --- accepted answers -----------------------------------------------------------------------------------------------


class Fact(NamedTuple):
    text: str
    form: str
    """Its words in SQuAD form; empty where the characters themselves are searched."""

    @property
    def pattern(self) -> str:
        """Of the stretch of a text that the words come from, without marks around it."""
        words = [_MARKS.join(map(re.escape, word)) for word in self.form.split()]
        return rf"(?<!\w){_BETWEEN_WORDS.join(words)}(?!\w)" if words else re.escape(self.text)


def facts_of(golds: Sequence[str]) -> tuple[Fact, ...]:
    """The accepted answers that can be searched for, each once."""
    found: dict[str, Fact] = {}
    for gold in map(str.strip, golds):
        form = normalise_squad(gold, any_script=True)
        if form and form not in CLOSED_ANSWERS:
            fact = Fact(gold, "" if re.search(f"[{WITHOUT_BLANKS}]", gold) else form)
            found.setdefault(fact.form or gold, fact)
    return tuple(found.values())


def holds(text: str, fact: Fact) -> bool:
    return f" {fact.form} " in _form(text) if fact.form else fact.text in text


@lru_cache(1024)  # whoever asks, asks for every fact in a text, and of siblings that share a document
def _form(text: str) -> str:
    return f" {normalise_squad(text.replace(_BOX, ' '), any_script=True)} "


def gold_spans(text: str, facts: Sequence[Fact]) -> list[Span]:
    """Where any of the facts stands in the text, from left to right, none over another."""
    patterns = sorted((fact.pattern for fact in facts if holds(text, fact)), key=len, reverse=True)
    return [match.span() for match in re.finditer("|".join(patterns), text, re.IGNORECASE)] if patterns else []
