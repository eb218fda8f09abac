"""What a person sees while a document is read: a line for every section, and how the memory changed there.

On a terminal changes have colours; elsewhere they are marked, a line for each section::

    [1/3] notes.txt, lines 1-40: {+metal silver+}
    [2/3] notes.txt, lines 40-71: unchanged
    [3/3] notes.txt, lines 71-96: metal silver{+, fruit fig+}

It goes to standard error, so that standard output has the answer and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ..data.documents import Documents, Skipped
from ..system.text import one_line
from .steps import Answered, Delta, Section, Started, Step, TurnDone
from .word_diff import Change, marked, shortened, word_diff

_STYLES = {Change.SAME: "dim", Change.ADDED: "green", Change.REMOVED: "red strike"}
_RECALLED = 200
"""Characters of a recalled memory that are shown."""
_NAMED = 5
"""Files of a folder that were skipped, by name."""


class Progress:
    """Shows, on ``console``, how the reading of ``documents`` goes."""

    def __init__(self, console: Console, documents: Documents, *, whole_memory: bool = False) -> None:
        self._console, self._documents, self._whole_memory = console, documents, whole_memory
        self._status = console.status("reading")
        """A line that moves at the foot of a terminal, and only there."""
        self._sections: tuple[Section, ...] = ()
        self._memory, self._round = "", -1
        self._read: set[int] = set()
        self._answered: Answered | None = None

    def __enter__(self) -> Progress:
        for document in self._documents.documents:
            if document.note:
                self._say(f"{document.name}: {document.note}", "yellow")
        if self._documents.skipped:
            self._say(skipped_line(self._documents.skipped), "yellow")
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        if not self._answered:
            return
        if unread := len(self._sections) - len(self._read):
            self._say(f"{unread} of {len(self._sections)} sections were not read", "yellow")
        if self._answered.cut:
            self._say("the reply was cut at its limit; raise MEM_MAX_FINAL", "yellow")

    def starting(self) -> None:
        self._say("starting an engine; it takes a while", "dim")
        self._status.update("starting an engine")

    def step(self, step: Step) -> None:
        match step:
            case Started():
                self._sections = step.sections
                names = [document.name for document in self._documents.documents]
                what = names[0] if len(names) == 1 else f"{len(names)} files"
                self._say(f"{what}: {step.document_tokens:,} tokens, {len(step.sections)} section(s)", "dim")
                self._next()
            case TurnDone(kind="memory"):
                self._memory_turn(step)
                self._next()
            case Delta():
                self._status.stop()  # the answer may go to the same terminal
            case Answered():
                self._answered = step

    def _next(self) -> None:
        left = len(self._sections) - len(self._read)
        reading = f"reading section {len(self._read) + 1} of {len(self._sections)}"
        self._status.update(reading if left else "answering")

    def _memory_turn(self, turn: TurnDone) -> None:
        beside = turn.round == self._round
        memory = " ".join(turn.memory.split())  # a line break in place of a blank is no change
        pieces = [] if beside else word_diff(self._memory, memory)
        self._read.update(turn.sections)
        self._round, self._memory = turn.round, memory
        if turn.recalled and not beside:
            self._say(f"recalled: {one_line(turn.recalled, None if self._whole_memory else _RECALLED)}", "dim")
        heading = self._heading(turn)
        if not any(piece.change is not Change.SAME for piece in pieces) and not (self._whole_memory and pieces):
            return self._say(f"{heading}: {'read beside it' if beside else 'unchanged'}", "dim")
        shown = pieces if self._whole_memory else shortened(pieces)
        if not self._console.is_terminal or self._console.no_color:
            return self._say(f"{heading}: {marked(shown)}")
        self._say(heading, "bold")
        text = Text.assemble(*((piece.text, _STYLES[piece.change]) for piece in shown))
        self._console.print(Padding(text, (0, 0, 0, 4)))

    def _heading(self, turn: TurnDone) -> str:
        if not turn.sections:
            return "merged"
        first, last = self._sections[turn.sections[0]], self._sections[turn.sections[-1]]
        places = "; ".join(str(place) for place in self._documents.places(first.start, last.end))
        return f"[{turn.sections[-1] + 1}/{len(self._sections)}] {places}"

    def _say(self, line: str, style: str = "") -> None:
        self._console.print(Text(one_line(line), style), soft_wrap=True)


def skipped_line(skipped: Sequence[Skipped]) -> str:
    """What of folders was skipped: the first by name, the others by number."""
    named = ", ".join(f"{part.name} ({part.reason})" for part in skipped[:_NAMED])
    more = len(skipped) - _NAMED
    return f"skipped: {named}" + (f" and {more} more" if more > 0 else "")
