r"""Ask a question about documents: ``mem-agent ask MODEL QUESTION FILE...``

::

    mem-agent ask runs/mine/hf/iter_0000099 "Who signed it?" contract.pdf mails/
    mem-agent ask MODEL QUESTION FILE --url http://127.0.0.1:8000        a server that runs already
    answer=$(mem-agent ask --quiet MODEL QUESTION FILE)                  the answer alone
    mem-agent ask --json MODEL QUESTION FILE                             a JSON object for every step

How the memory grows goes to standard error (``progress``). Standard output has the reply, the answer in it, and where
it came from::

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
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from ..agents.records import FailureKind
from ..checkpoints.hf_model import config_for_model, local_folder
from ..config import Config, ConfigError
from ..data.documents import Documents, Place, read_documents
from ..system.command_line_types import whole_number
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.processes import FleetError
from ..system.signals import run_stoppable
from ..system.text import one_line
from .progress import Progress
from .sources import Source, sources_with_quotes
from .steps import Answered, Delta, Failed, Options, Section, Started, Step, TurnDone

_OF_THE_ENGINE = (FailureKind.CONNECTION, FailureKind.SERVER_ERROR, FailureKind.BAD_RESPONSE)


@one_line_errors("what was started for the question has ended", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if not options.question.strip():
        raise ConfigError("the question is empty; it is the second argument, behind the model")
    Config.from_env()  # bad settings end it before a model is downloaded
    model = local_folder(options.model, "MODEL")
    config, _ = config_for_model(model)
    documents = read_documents(options.documents)
    progress = None
    with ExitStack() as shown:
        if not (options.quiet or options.json):
            console = Console(file=sys.stderr, highlight=False)
            progress = shown.enter_context(Progress(console, documents, whole_memory=options.show_memory))
        run_stoppable(_ask(options, model, config, documents, progress))
    return 0


async def _ask(
    options: argparse.Namespace, model: Path, config: Config, documents: Documents, progress: Progress | None
) -> None:
    from ..rollout_client import close_clients
    from .reader import reader_at  # here: its libraries take seconds, and a file that cannot be read should not

    if progress and not options.url:
        progress.starting()
    output = _Output(documents, options.question)
    seed = config.seed if options.seed is None else options.seed
    async with reader_at(options.url, model, config, served_model=options.served_model) as served:
        try:
            async with aclosing(served.reader.read(options.question, documents.text, Options(seed=seed))) as steps:
                async for step in steps:
                    if progress:
                        progress.step(step)
                    print(output.json(step) if options.json else output.text(step, options.quiet), end="", flush=True)
                    if isinstance(step, Answered) and not step.text.strip():
                        raise MemAgentError("the model replied with nothing")
                    if isinstance(step, Failed) and served.fleet and step.kind in _OF_THE_ENGINE:
                        raise FleetError(f"{step.message}; what the engine said is in {served.fleet.logs}")
                    if isinstance(step, Failed):
                        raise MemAgentError(step.message)
        finally:
            await close_clients()


class _Output:
    """What goes to standard output for each step."""

    def __init__(self, documents: Documents, question: str) -> None:
        self._documents, self._question = documents, question
        self._sections: tuple[Section, ...] = ()
        self._began = time.monotonic()

    def text(self, step: Step, quiet: bool) -> str:
        match step:
            case Started():
                self._sections = step.sections
            case Delta() if not quiet:
                return step.text
            case Answered() if step.text.strip():
                return f"{_answer(step)}\n" if quiet else self._end(step)
        return ""

    def _end(self, answered: Answered) -> str:
        answer, found = _answer(answered), self._sources(answered)
        lines = [] if answer == answered.text.strip() else ["", f"Answer: {answer}"]
        lines += ["", "From:", *(f"  {source_line(source)}" for source in found)] if found else []
        if not self._sections:
            lines += ["", "From no document: this agent reads none."]
        elif not found:
            lines += ["", "From no section that can be named: the words of the answer are not in the memory."]
        return "\n".join(["", *lines, ""])

    def json(self, step: Step) -> str:
        names = {Started: "started", TurnDone: "turn", Delta: "delta", Answered: "answer", Failed: "failed"}
        record = {"event": names[type(step)]} | asdict(step)
        if isinstance(step, Started):
            self._sections, self._began = step.sections, time.monotonic()
            documents = [
                {"name": one.name, "unit": one.unit, "units": len(one.starts), "characters": len(one.text),
                 "note": one.note} for one in self._documents.documents
            ]
            places = [_places(self._documents.places(one.start, one.end)) for one in step.sections]
            record |= {"documents": documents, "skipped": list(map(asdict, self._documents.skipped)),
                       "sections": places}
        if isinstance(step, Answered):
            found = [asdict(source) | {"places": _places(source.places), "at": _places(source.at)}
                     for source in self._sources(step)]
            record |= {"answer": _answer(step), "sources": found,
                       "seconds": round(time.monotonic() - self._began, 3)}
        return orjson.dumps(record).decode() + "\n"

    def _sources(self, step: Answered) -> list[Source]:
        return sources_with_quotes(self._documents, self._sections, step.sources, _answer(step), self._question)


def _answer(answered: Answered) -> str:
    """What the task reads from the reply, or the whole reply where it finds nothing."""
    return answered.answer or answered.text.strip()


def _places(places: Sequence[Place]) -> list[dict[str, Any]]:
    return list(map(asdict, places))


def source_line(source: Source) -> str:
    places = "; ".join(map(str, source.at or source.places))
    return one_line(f"{places}: “{source.quote}”" if source.quote else places)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent ask", description="Ask a question about documents.")
    add = parser.add_argument
    add("model", metavar="MODEL", help="Hugging Face folder or id of the model")
    add("question", metavar="QUESTION")
    add("documents", metavar="FILE", nargs="+",
        help="text, PDF, HTML or Word files, or folders of such; - is standard input")
    add("--url", default="", help="a server that has the model (default: engines started for it)")
    add("--served-model", default="", help="the model's name there (default: the only one)")
    add("--show-memory", action="store_true", help="the whole memory after each section")
    add("--quiet", action="store_true", help="nothing but the answer")
    add("--json", action="store_true", help="an object for every step")
    add("--seed", type=whole_number, help="of the sampling (default: SEED)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
