r"""Ask a question about documents: ``mem-agent ask MODEL QUESTION FILE...``

::

    mem-agent ask runs/mine/hf/iter_0000099 "Who signed it?" contract.pdf mails/
    mem-agent ask MODEL QUESTION FILE --url http://127.0.0.1:8000        a server that runs already
    answer=$(mem-agent ask --quiet MODEL QUESTION FILE)                  the answer alone
    mem-agent ask --json MODEL QUESTION FILE                             a JSON object for every step

How the memory grows goes to standard error, a line for every section; a terminal shows changes in colours, and in a
last line the memory that is being written, the time so far and what is left::

    [1/3] notes.txt, lines 1-40: {+metal silver+}
    [2/3] notes.txt, lines 40-71: unchanged
    [3/3] notes.txt, lines 71-96: metal silver{+, fruit fig+}

Standard output has the reply, the answer in it, and where it came from::

    Her metal is \boxed{silver}

    Answer: silver

    From:
      notes.txt, line 12: “metal silver.”

``--quiet`` leaves ``silver``. ``--json`` gives an object a line, the last one ``answer`` or ``failed``::

    {"event": "started", "documents": [...], "skipped": [...], "document_tokens": 5312, "sections": [[place, ...]]}
    {"event": "turn", "kind": "memory", "sections": [0], "memory": "metal silver", "reply": ..., ...}
    {"event": "delta", "text": ...}
    {"event": "answer", "answer": "silver", "text": ..., "sources": [{"section": 0, "places": [...], "quote": ...}]}
    {"event": "failed", "kind": "timeout", "message": ...}

Exit code 0: there is an answer; 1: there is none, and a line says why; 2: a bad argument or setting; 130: interrupted.
Whatever was started for the question has ended by then.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from ..agents.records import TurnFailed
from ..data.documents import Documents, Place, read_documents
from ..system.cli import one_line_errors, run_stoppable
from ..system.errors import ConfigError, MemAgentError
from ..system.text import one_line
from .steps import Answered, Delta, Growing, Section, Started, Step, TurnDone, quoted
from .word_diff import Change, marked, shortened, word_diff

LOGS = Path("runs/ask")
_MOST = 500
"""Characters about documents, such as what was skipped of a folder."""


@one_line_errors("what was started for the question has ended", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if not options.question.strip():
        raise ConfigError("the question is empty; it is the second argument, behind the model")
    run_stoppable(_ask(options, _Shown(options, read_documents(options.documents))))
    return 0


async def _ask(options: argparse.Namespace, shown: _Shown) -> None:
    from .reader import reader_at  # here: its libraries take seconds, and a file that cannot be read should not

    if not options.url:
        shown.say(f"starting an engine, which takes a while and logs to {LOGS}/logs", "dim")
    question = [{"role": "user", "content": options.question}]
    async with reader_at(options.model, options.url, options.served_model, LOGS, num_engines=1) as reader:
        try:
            answered = await reader.read(question, shown.documents.text, shown.step, seed=reader.config.seed,
                                         growing=shown.is_live)
        except TurnFailed as error:
            if options.json:
                _print_json("failed", kind=error.kind, message=str(error))
            raise MemAgentError(str(error)) from None
        finally:
            shown.progress.stop()
    shown.end(answered)
    if not answered.text.strip():
        raise MemAgentError("the model replied with nothing")


def _print_json(event: str, **fields: Any) -> None:
    print(orjson.dumps({"event": event} | fields).decode(), flush=True)


class _Shown:
    """What people or programs see of a reading of ``documents``."""

    def __init__(self, options: argparse.Namespace, documents: Documents) -> None:
        self.documents, self._options = documents, options
        self._console = Console(stderr=True, highlight=False, quiet=options.quiet or options.json)
        self.is_live = self._console.file.isatty() and not self._console.quiet
        """Whether a last line shows what is being written, the time so far and what is left."""
        memory = TextColumn("{task.description}", "dim", markup=False, table_column=Column(no_wrap=True))
        self.progress = Progress(MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(), memory,
                                 console=self._console, transient=True, disable=not self.is_live)
        self._sections: tuple[Section, ...] = ()
        self._memory = ""
        notes = [f"{document.name}: {document.note}" for document in documents.documents if document.note]
        notes += [f"skipped {part.name}: {part.reason}" for part in documents.skipped]
        if notes:
            self.say(one_line("; ".join(notes), _MOST), "yellow")

    def say(self, line: str, style: str = "") -> None:
        text = Text(one_line(line), style)
        text.highlight_regex(r"\{\+.*?\+\}", "green")
        text.highlight_regex(r"\[-.*?-\]", "red strike")
        self._console.print(text, soft_wrap=True)

    def step(self, step: Step) -> None:
        if isinstance(step, Started):
            self._started(step)
        elif isinstance(step, Growing):
            self._growing(step)
        elif self._options.json:
            _print_json("delta" if isinstance(step, Delta) else "turn", **asdict(step))
        elif isinstance(step, TurnDone):
            if step.kind == "memory":
                self._memory_turn(step)
        elif not self._options.quiet:
            self.progress.stop()
            print(step.text, end="", flush=True)

    def _started(self, started: Started) -> None:
        self._sections, tokens = started.sections, started.document_tokens
        self.say(f"{', '.join(self._options.documents)}: {tokens:,} tokens, {len(self._sections)} section(s)", "dim")
        if self._options.json:
            read = [{"name": one.name, "unit": one.unit, "units": len(one.starts), "note": one.note}
                    for one in self.documents.documents]
            _print_json("started", documents=read, skipped=self.documents.skipped, document_tokens=tokens,
                        sections=[self._places(number) for number in range(len(self._sections))])
        if self.is_live:
            self._task = self.progress.add_task("", total=len(self._sections))
            self.progress.start()

    def _growing(self, step: Growing) -> None:
        room = max(20, self._console.width - 40)  # its end is what is being written
        self.progress.update(self._task, completed=step.section, description=one_line(step.memory)[-room:])

    def _places(self, number: int) -> Sequence[Place]:
        section = self._sections[number]
        return self.documents.places(section.start, section.end)

    def _memory_turn(self, turn: TurnDone) -> None:
        memory = one_line(turn.memory)  # a line break in place of a blank is no change
        pieces, self._memory = word_diff(self._memory, memory), memory
        place = "merged"
        for number in turn.sections:
            place = f"[{number + 1}/{len(self._sections)}] {_joined(self._places(number))}"
        if self.is_live:
            self.progress.update(self._task, completed=turn.sections[-1] + 1 if turn.sections else None)
        changed = any(piece.change is not Change.SAME for piece in pieces)
        shown = pieces if self._options.show_memory else shortened(pieces) if changed else []
        self.say(f"{place}: {marked(shown) or 'unchanged'}")

    def end(self, answered: Answered) -> None:
        answer, text = answered.answer or answered.text.strip(), answered.text.strip()
        found = [self._source(number, answer) for number in answered.sources]
        if self._options.json:
            _print_json("answer", **asdict(answered) | {"answer": answer, "sources": found})
        elif self._options.quiet:
            print(answer)
        elif text:
            print(f"\n\nAnswer: {answer}" if answer != text else "")
            if found:
                print("\nFrom:", *map(_line, found), sep="\n  ")
            else:
                print("\nFrom no section: no memory took the answer's words from one.")
            if answered.finish_reason == "length":
                self.say("the reply was cut at its limit; raise MEM_MAX_FINAL", "yellow")

    def _source(self, number: int, answer: str) -> dict[str, Any]:
        text = self.documents.text
        start, end = quoted(text, self._sections[number], answer, self._options.question)
        return {"section": number, "places": self._places(number), "quote": text[start:end],
                "at": self.documents.places(start, end)}


def _joined(places: Sequence[Place]) -> str:
    return "; ".join(map(str, places))


def _line(source: dict[str, Any]) -> str:
    quote = source["quote"]
    return one_line(f"{_joined(source['at'])}: “{quote}”" if quote else _joined(source["places"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent ask", description="Ask a question about documents.")
    add = parser.add_argument
    add("model", metavar="MODEL", help="Hugging Face folder or id of the model")
    add("question", metavar="QUESTION")
    add("documents", metavar="FILE", nargs="+", help="text, PDF, HTML, Word, or folders of such; - is standard input")
    add("--url", default="", help="a server that has the model (default: engines started for it)")
    add("--served-model", default="", help="the model's name there (default: the only one)")
    add("--show-memory", action="store_true", help="the whole memory after each section")
    add("--quiet", action="store_true", help="nothing but the answer")
    add("--json", action="store_true", help="an object for every step")
    return parser
