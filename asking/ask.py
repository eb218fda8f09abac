"""Ask a question about documents: ``mem-agent ask MODEL QUESTION FILE...``

::

    mem-agent ask runs/mine/hf/iter_0000099 "Who signed it?" contract.pdf mails/
    mem-agent ask MODEL QUESTION FILE --url http://127.0.0.1:8000        a server that runs already
    answer=$(mem-agent ask --quiet MODEL QUESTION FILE)                  the answer alone
    mem-agent ask --json MODEL QUESTION FILE                             a JSON object for every step

How the memory grows goes to standard error, the reply, the answer and where it came from to standard output. Exit code
0: there is an answer; 1: there is none, and a line says why; 2: a bad argument or setting; 130: interrupted. Whatever
was started for the question has ended by then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path

from ..agents.records import FailureKind
from ..checkpoints.hf_model import config_for_model, local_folder
from ..config import Config, ConfigError
from ..data.documents import Documents, read_documents
from ..system.command_line_types import whole_number
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.processes import FleetError
from ..system.signals import run_stoppable
from .outputs import AnswerAlone, Answers, JsonLines, People
from .progress import Progress, progress_console
from .steps import Answered, Failed, Step

_OF_THE_ENGINE = frozenset(
    {FailureKind.CONNECTION, FailureKind.SERVER_ERROR, FailureKind.RATE_LIMITED, FailureKind.BAD_RESPONSE}
)


class AskError(MemAgentError):
    """The question has no answer; one line."""


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
    with ExitStack() as shown:
        progress = None
        if not (options.quiet or options.json):
            progress = Progress(progress_console(), documents, whole_memory=options.show_memory)
            shown.enter_context(progress)
        answers = _answers(options, documents)
        run_stoppable(_ask(options, model, config, documents, answers, progress))
    return 0


async def _ask(
    options: argparse.Namespace, model: Path, config: Config, documents: Documents, answers: Answers,
    progress: Progress | None,
) -> None:
    from ..rollout_client import close_clients
    from .engines import reader_at  # here: torch takes seconds, and a file that cannot be read should not wait for it

    if progress and not options.url:
        progress.starting()
    async with reader_at(options.url, model, config, served_model=options.served_model) as served:
        try:
            seed = config.seed if options.seed is None else options.seed
            async with aclosing(served.reader.read(options.question, documents.text, seed=seed)) as steps:
                async for step in steps:
                    if progress:
                        progress.step(step)
                    answers.step(step)
                    _check(step, served.logs)
        finally:
            await close_clients()


def _check(step: Step, logs: Path | None) -> None:
    """Raises where there is no answer and will be none."""
    if isinstance(step, Answered) and not step.text.strip():
        raise AskError("the model replied with nothing")
    if isinstance(step, Failed):
        if logs and step.kind in _OF_THE_ENGINE:
            raise FleetError(f"{step.message}; what the engine said is in {logs}")
        raise AskError(step.message)


def _answers(options: argparse.Namespace, documents: Documents) -> Answers:
    if options.json:
        return JsonLines(sys.stdout, documents, options.question, last_only=options.quiet)
    return AnswerAlone(sys.stdout) if options.quiet else People(sys.stdout, documents, options.question)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent ask", description="Ask a question about documents.")
    parser.add_argument("model", metavar="MODEL", help="Hugging Face folder or id of the model")
    parser.add_argument("question", metavar="QUESTION")
    parser.add_argument("documents", metavar="FILE", nargs="+",
                        help="text, PDF, HTML or Word files, or folders of such; - is standard input")
    parser.add_argument("--url", default="", help="a server that has the model (default: engines started for it)")
    parser.add_argument("--served-model", default="", help="the model's name there (default: the only one)")
    parser.add_argument("--show-memory", action="store_true", help="the whole memory after each section")
    parser.add_argument("--quiet", action="store_true", help="nothing but the answer")
    parser.add_argument("--json", action="store_true", help="an object for every step; with --quiet the last alone")
    parser.add_argument("--seed", type=whole_number, help="of the sampling (default: SEED)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
