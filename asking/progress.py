"""What is told while a document is read: a line for every section, and how the memory changed there.

On a terminal changes have colours; elsewhere they are marked, a line for each section::

    [1/3] notes.txt, lines 1-40: {+metal silver+}
    [2/3] notes.txt, lines 40-71: unchanged
    [3/3] notes.txt, lines 71-96: metal silver{+, fruit fig+}

It goes to standard error, so that standard output has the answer and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.status import Status
from rich.text import Text

from ..data.documents import Documents, Skipped
from ..system.text import one_line
from ..traces.word_diff import Change, Piece, marked, shortened, word_diff
from .steps import Answered, Delta, Section, Started, Step, TurnDone

_STYLES = {Change.SAME: "dim", Change.ADDED: "green", Change.REMOVED: "red strike"}
_RECALLED = 200
"""Characters of a recalled memory that are shown."""
_NAMED = 5
"""Files of a folder that were skipped, by name."""


class Progress:
    """Tells people, on ``console``, how the reading of ``documents`` goes."""

    def __init__(self, console: Console, documents: Documents, *, whole_memory: bool = False) -> None:
        self._console = console
        self._documents = documents
        self._whole_memory = whole_memory
        self._sections: tuple[Section, ...] = ()
        self._memory = ""
        self._round = -1
        self._read: set[int] = set()
        self._status: Status | None = None
        self._answered: Answered | None = None

    def __enter__(self) -> Progress:
        for document in self._documents.documents:
            if document.note:
                self._say(f"{document.name}: {document.note}", "yellow")
        if self._documents.skipped:
            self._say(skipped_line(self._documents.skipped), "yellow")
        return self

    def __exit__(self, *_: object) -> None:
        """What is to be known besides the answer is told behind it."""
        self._wait_for("")
        if not self._answered:
            return
        if unread := len(self._sections) - len(self._read):
            self._say(f"{unread} of {len(self._sections)} sections were not read", "yellow")
        if self._answered.cut:
            self._say("the reply was cut at its limit; raise MEM_MAX_FINAL", "yellow")

    def starting(self) -> None:
        self._say("starting an engine; it takes a while", "dim")
        self._wait_for("starting an engine")

    def step(self, step: Step) -> None:
        if isinstance(step, Started):
            self._started(step)
        elif isinstance(step, TurnDone) and step.kind == "memory":
            self._memory_turn(step)
        elif isinstance(step, Delta):
            self._wait_for("")  # the answer may go to the same terminal
        elif isinstance(step, Answered):
            self._answered = step

    def _started(self, started: Started) -> None:
        self._sections = started.sections
        names = [document.name for document in self._documents.documents]
        what = names[0] if len(names) == 1 else f"{len(names)} files"
        self._wait_for("")
        self._say(f"{what}: {started.document_tokens:,} tokens, {len(self._sections)} section(s)", "dim")
        self._next()

    def _memory_turn(self, turn: TurnDone) -> None:
        self._read.update(turn.sections)
        beside = turn.round == self._round
        memory = " ".join(turn.memory.split())  # a line break in place of a blank is no change
        pieces = [] if beside else word_diff(self._memory, memory)
        self._round, self._memory = turn.round, memory
        if turn.recalled and not beside:
            self._say(f"recalled: {one_line(turn.recalled, None if self._whole_memory else _RECALLED)}", "dim")
        self._change(self._heading(turn), pieces, "read beside it" if beside else "unchanged")
        self._next()

    def _heading(self, turn: TurnDone) -> str:
        if not turn.sections:
            return "merged"
        first, last = self._sections[turn.sections[0]], self._sections[turn.sections[-1]]
        places = "; ".join(str(place) for place in self._documents.places(first.start, last.end))
        return f"[{turn.sections[-1] + 1}/{len(self._sections)}] {one_line(places)}"

    def _change(self, heading: str, pieces: Sequence[Piece], otherwise: str) -> None:
        changed = any(piece.change is not Change.SAME for piece in pieces)
        shown = pieces if self._whole_memory else shortened(pieces)
        if not self._console.is_terminal or self._console.no_color:
            change = one_line(marked(shown)) if changed or (self._whole_memory and pieces) else otherwise
            return self._say(f"{heading}: {change}")
        if not changed and not (self._whole_memory and pieces):
            return self._say(f"{heading}: {otherwise}", "dim")
        self._say(heading, "bold")
        text = Text.assemble(*((piece.text, _STYLES[piece.change]) for piece in shown))
        self._console.print(Padding(text, (0, 0, 0, 4)))

    def _next(self) -> None:
        left = len(self._sections) - len(self._read)
        self._wait_for(f"reading section {len(self._read) + 1} of {len(self._sections)}" if left else "answering")

    def _wait_for(self, what: str) -> None:
        """A line that moves at the foot of a terminal; none where ``what`` is empty."""
        if self._status and what:
            self._status.update(what)
        elif self._status:
            self._status.stop()
            self._status = None
        elif what and self._console.is_terminal:
            self._status = self._console.status(what)
            self._status.start()

    def _say(self, line: str, style: str = "") -> None:
        self._console.print(Text(one_line(line), style), soft_wrap=True)


def progress_console() -> Console:
    return Console(file=sys.stderr, highlight=False)


def skipped_line(skipped: Sequence[Skipped]) -> str:
    """What of folders was left out: the first by name, the others by number."""
    named = ", ".join(f"{part.name} ({part.reason})" for part in skipped[:_NAMED])
    more = len(skipped) - _NAMED
    return f"skipped: {named}" + (f" and {more} more" if more > 0 else "")
