"""The pack's commands under one name: ``mem-agent COMMAND``, or ``python -m mem_agent COMMAND``.

A command is a module with a ``main(argv)`` that returns an exit code. It is imported when it is run, so the list of
commands appears at once.
"""

from __future__ import annotations

if not __package__:
    from __init__ import run_in_package

    run_in_package(__file__)

import importlib
import os
import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import groupby

from .system.cli import one_line_errors, settle_process, stop_on_signals, use_recipe
from .system.errors import MemAgentError

LISTED = {
    "train": ("train", "training.train", "train with the embedded host: evaluate, train, convert, evaluate, compare"),
    "convert": ("train", "checkpoints.convert", "a torch_dist checkpoint to a Hugging Face folder"),
    "card": ("train", "evaluation.card_table", "what evaluation found into a model's card; the model to the hub"),
    "prepare": ("data", "prepare_data", "training data from question answering data sets"),
    "prepare-math": ("data", "data.prepare_math", "rows and evaluation files of math tasks: GSM8K, Countdown"),
    "prepare-sessions": ("data", "data.prepare_sessions", "chat histories: LoCoMo, LongMemEval, PersonaMem"),
    "templates": ("data", "agents.published", "the wording of MemAgent, ReMemR1, RULER or MemSifter, from a checkout"),
    "ruler": ("data", "evaluation.make_ruler", "evaluation files of RULER's tasks"),
    "eval": ("evaluate", "eval_ruler_hqa", "evaluate a model, on own engines or at a server; tables, comparisons"),
    "report": ("look", "report.page", "a page of runs and results: curves, comparisons, every question"),
    "view": ("look", "report.viewer.page", "a page of trajectories: what was read, remembered, answered"),
    "show": ("look", "report.viewer.show", "the same in the terminal, one trajectory at a time"),
    "ask": ("use", "asking.ask", "ask a question about files and folders of any length"),
    "serve": ("use", "asking.serve", "an OpenAI-compatible endpoint: any chat client asks an agent"),
    "serve-engines": ("use", "serving.fleet", "engines with a model behind a router, for evaluation"),
    "session-embedding": ("memsifter", "memsifter.embed", "MemSifter's stage 1: how similar sessions are"),
    "session-ranking": ("memsifter", "memsifter.rank", "MemSifter's stage 2: a model ranks a history's sessions"),
    "chat-infer": ("memsifter", "memsifter.answer", "MemSifter's stage 3: a chat model answers from the best"),
    "sifter-table": ("memsifter", "memsifter.table", "sessions found and questions answered, by every method"),
    "curriculum": ("memsifter", "memsifter.curriculum", "rounds of MemSifter's training: train, average, rank again"),
    "config": ("develop", "config", "every setting, its default and its meaning"),
    "bench": ("develop", "benchmarks.__main__", "measure this machine, side by side; a table and JSON"),
}
"""Name -> what it is for, as the help has it in this order; its module in the package; what it does."""
STEPS = {
    "launch": "launch.launch", "rehearse": "rehearsal.rehearse", "average": "checkpoints.average",
    "hf-to-torch-dist": "checkpoints.hf_to_torch_dist", "memsifter": "memsifter.all_stages",
    "prepare-rl-data": "memsifter.rl_data", "synthesize": "data.synthesize",
    "closed-book": "evaluation.closed_book", "pocket": "pocket.prepare", "smollm2": "pocket.smollm2",
}
"""Steps that a script or one of these takes, or variants: callable, not listed."""
COMMANDS = STEPS | {name: module for name, (_, module, _) in LISTED.items()}


@one_line_errors("nothing was begun")  # a command has an ending of its own once it is imported
def main(argv: list[str] | None = None) -> int:
    """Run the command that the first argument names; it ends the process with its own exit code."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or [""]
    if name in ("", "-h", "--help"):
        print(usage(), file=sys.stdout if name else sys.stderr)
        return 0 if name else 2
    if name not in COMMANDS:
        print(f"error: unknown command {name!r}; see mem-agent --help", file=sys.stderr)
        return 2
    if name in ("prepare-rl-data", "curriculum") and os.environ.get("RECIPE", "").endswith((".yaml", ".yml")):
        os.environ.setdefault("DATA_RECIPE", os.environ.pop("RECIPE"))  # MemSifter's RECIPE is of data
    if name != "launch":  # its processes are the host's, which settles them
        settle_process()
    stop_on_signals()
    try:
        use_recipe()
        for near, meant in near_misses(os.environ):
            print(f"warning: {near} is not a setting and has no effect; did you mean {meant}?", file=sys.stderr)
        code: int = importlib.import_module(f"{__package__}.{COMMANDS[name]}").main(arguments)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        # In a host its own packages must stay as they are.
        in_host = os.environ.get("HOST") in ("slime", "vime")
        advice = f"pip install --no-deps {missing}" if in_host else "pip install 'mem-agent[all]'"
        raise MemAgentError(f"mem-agent {name} needs {missing}: {advice}") from None
    return code


def near_misses(names: Iterable[str]) -> list[tuple[str, str]]:
    """Each of ``names`` that is not a setting but nearly one, with that setting.

    Another program may use it, so it is a warning, not an error; single words (METHOD) are ignored.
    """
    from .config import Config  # not before it is clear that a command is run

    settings = set(map(str.upper, Config.model_fields))
    others = [name for name in names if name not in settings and re.fullmatch("[A-Z0-9]+(_[A-Z0-9]+)+", name)]
    # 0.9: in 10 letters, one missing, doubled or wrong
    return [(name, near) for name in others for near in get_close_matches(name, settings, 1, 0.9)]


def usage() -> str:
    lines = ["usage: mem-agent COMMAND [--help] ..."]
    for group, commands in groupby(LISTED.items(), key=lambda command: command[1][0]):
        lines += ["", f"{group}:", *(f"  {name:19}{meaning}" for name, (_, _, meaning) in commands)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
