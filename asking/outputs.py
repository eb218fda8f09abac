r"""What goes to standard output: the reply, the answer in it, and where it came from; or JSON.

For people::

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
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol, TextIO

import orjson

from ..data.documents import Documents
from ..system.text import one_line
from .quotes import Source, sources_with_quotes
from .steps import Answered, Delta, Failed, Section, Started, Step, TurnDone


class Answers(Protocol):
    """What is done with the steps of one reading."""

    def step(self, step: Step) -> None: ...


def answer_of(answered: Answered) -> str:
    """What the task reads from the reply, or the whole reply where it finds nothing."""
    return answered.answer or answered.text.strip()


class AnswerAlone:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def step(self, step: Step) -> None:
        if isinstance(step, Answered) and step.text.strip():
            print(answer_of(step), file=self._out, flush=True)


class People:
    """The reply as it comes, then the answer in it and its sources."""

    def __init__(self, out: TextIO, documents: Documents, question: str) -> None:
        self._out = out
        self._documents = documents
        self._question = question
        self._sections: tuple[Section, ...] = ()

    def step(self, step: Step) -> None:
        if isinstance(step, Started):
            self._sections = step.sections
        elif isinstance(step, Delta):
            print(step.text, end="", file=self._out, flush=True)
        elif isinstance(step, Answered) and step.text.strip():
            answer = answer_of(step)
            found = sources_with_quotes(self._documents, self._sections, step.sources, answer, self._question)
            lines = ["", *self._answer(step, answer), "", *self._sources(found)]
            print(*lines, sep="\n", file=self._out, flush=True)

    def _answer(self, answered: Answered, answer: str) -> list[str]:
        same = answer == answered.text.strip()
        return [] if same else ["", f"Answer: {answer}"]

    def _sources(self, found: Sequence[Source]) -> list[str]:
        if not self._sections:
            return ["From no document: this agent reads none."]
        if not found:
            return ["From no section that can be named: the words of the answer are not in the memory."]
        return ["From:", *(f"  {source_line(source)}" for source in found)]


def source_line(source: Source) -> str:
    places = "; ".join(str(place) for place in source.at or source.places)
    return one_line(f"{places}: “{source.quote}”" if source.quote else places)


class JsonLines:
    """Every step, or with ``last_only`` the one that ends the reading."""

    def __init__(self, out: TextIO, documents: Documents, question: str, *, last_only: bool = False) -> None:
        self._out = out
        self._documents = documents
        self._question = question
        self._last_only = last_only
        self._sections: tuple[Section, ...] = ()
        self._began = 0.0

    def step(self, step: Step) -> None:
        if isinstance(step, Started):
            self._sections, self._began = step.sections, time.monotonic()
        if not self._last_only or isinstance(step, Answered | Failed):
            print(orjson.dumps(self._record(step)).decode(), file=self._out, flush=True)

    def _record(self, step: Step) -> dict[str, Any]:
        match step:
            case Started():
                documents = [
                    {"name": d.name, "unit": d.unit, "units": len(d.starts), "characters": len(d.text),
                     "note": d.note} for d in self._documents.documents
                ]
                skipped = [{"name": s.name, "reason": s.reason} for s in self._documents.skipped]
                sections = [self._places(self._documents.places(s.start, s.end)) for s in step.sections]
                return {"event": "started", "documents": documents, "skipped": skipped,
                        "document_tokens": step.document_tokens, "sections": sections}
            case TurnDone():
                return {"event": "turn"} | asdict(step)
            case Delta():
                return {"event": "delta", "text": step.text}
            case Answered():
                return {"event": "answer"} | asdict(step) | {
                    "answer": answer_of(step), "sources": self._sources(step),
                    "seconds": round(time.monotonic() - self._began, 3),
                }
            case Failed():
                return {"event": "failed", "kind": step.kind, "message": step.message}

    def _sources(self, step: Answered) -> list[dict[str, Any]]:
        found = sources_with_quotes(self._documents, self._sections, step.sources, answer_of(step), self._question)
        return [{"section": s.section, "places": self._places(s.places), "quote": s.quote, "at": self._places(s.at)}
                for s in found]

    def _places(self, places: Sequence[Any]) -> list[dict[str, Any]]:
        return [asdict(place) | {"document": place.document} for place in places]
