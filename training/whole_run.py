"""What run-train.sh and run-eval.sh do once their environment is installed, in one process::

    mem-agent run train    in the embedded host: pocket data, evaluate, train, convert, evaluate, table, card
    mem-agent run eval     convert where CONVERT=1 asks for it, evaluate

Besides the settings of ``mem-agent config`` they read the scripts' own variables: EVAL, CONVERT, SINGLE_ITER,
MODEL_PATH, RESULTS, SAVE_FILE, FORCE, PUSH_TO_HUB, PRIVATE. Each step is a command of the pack, called as a function;
DRY_RUN=1 prints the commands instead. A second run does what the first one left undone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..checkpoints.folders import newest_of_run
from ..config import Config
from ..eval_ruler_hqa import FINISHED_WITH_FAILURES
from ..eval_ruler_hqa import main as evaluate
from ..evaluation.card_table import main as card
from ..system.errors import ConfigError, MemAgentError
from ..system.one_line_errors import one_line_errors
from ..system.python_command import python_module
from ..system.signals import stop_on_signals
from .train import NOTHING_TO_TRAIN
from .train import main as train

# --- run-train.sh ---------------------------------------------------------------------------------------------------


def train_here(config: Config) -> int:
    """Train with the embedded host, whose engines evaluate before and after; then the table and the card."""
    run = Path(config.save_path)
    evaluates = flag("EVAL", "1") and bool(config.data_root)
    what = f"evaluating {config.hf_ckpt} before and {run}/hf/iter_* after"
    say(f"training in {run}, {what if evaluates else 'without an evaluation (DATA_ROOT is not set, or EVAL=0)'}")
    finish = ["--evaluate"] if evaluates else ["--convert"] * flag("CONVERT", "1")  # --evaluate converts as well
    code = command("train", train, *finish)
    if flag("DRY_RUN") or not finish or code not in (0, NOTHING_TO_TRAIN):
        return code
    newest = newest_of_run(run)
    assert newest is not None, "a run that has ended has a checkpoint"
    model, before, after = run / "hf" / newest.name, run / "eval" / "before", run / "eval" / f"after-{newest.name}"
    if code == NOTHING_TO_TRAIN:  # an earlier start finished training, but maybe not the rest
        if code := convert(config, model, "--iteration", newest.name):
            return code
        os.environ.pop("BASE_URL", None)  # it serves other weights
        for weights, output in ((config.hf_ckpt, before), (str(model), after)) if evaluates else ():
            code = evaluate(["--model", weights, "--output", str(output)])
            if code not in (0, FINISHED_WITH_FAILURES):
                return code
    about = pushing()
    if before.is_dir() and after.is_dir():
        results = [str(before), str(after)]
        if code := evaluate(["--table", *results]):
            return code
        about = ["--results", *results, *about]
    if about and (model / "README.md").is_file():
        return card([str(model), *about])
    return 0


@contextmanager
def pocket_profile(dry: bool) -> Iterator[None]:
    """The data of POCKET_TASK in POCKET_DATA, and at POCKET_CHAT_PORT the frozen chat model while the block lasts.

    Does nothing if neither is set; ``dry``: prints what writes the data.

    Raises:
        MemAgentError: the data cannot be written, or another program has the port.
    """
    folder, port = os.environ.get("POCKET_DATA"), os.environ.get("POCKET_CHAT_PORT")
    if folder:
        seed, task = os.environ.get("SEED") or "1", os.environ.get("POCKET_TASK") or "look-up"
        writing = ["pocket", "--output", folder, "--seed", seed, "--task", task]
        if dry:
            print(shlex.join(["mem-agent", *writing]), flush=True)
        elif subprocess.call(python_module("mem_agent", *writing)):
            raise MemAgentError(f"POCKET_DATA={folder}: the data cannot be written; the line above says why")
    if not port or dry:
        yield
        return
    serving = python_module("mem_agent.pocket.frozen_chat", "--port", port, "--with-parent")
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True, start_new_session=True) as chat:
        assert chat.stdout is not None
        try:
            ready = chat.stdout.readline()
            if not ready:
                raise MemAgentError(f"POCKET_CHAT_PORT={port}: no chat model answers there; the line above says why")
            say(ready.rstrip())
            yield
        finally:
            chat.terminate()


# --- run-eval.sh ----------------------------------------------------------------------------------------------------


def evaluate_model(config: Config) -> int:
    """Evaluate MODEL_PATH, or with CONVERT=1 the checkpoint SINGLE_ITER of SAVE_PATH, into RESULTS/SAVE_FILE."""
    model, checkpoint = os.environ.get("MODEL_PATH"), os.environ.get("SINGLE_ITER")
    if flag("CONVERT"):
        if not checkpoint or not os.environ.get("SAVE_PATH"):
            raise ConfigError("CONVERT=1 needs SAVE_PATH and SINGLE_ITER=iter_<number>")
        model = model or f"{config.save_path}/hf/{checkpoint}"
        if code := convert(config, Path(model), "--iteration", checkpoint, "--output", model, *pushing()):
            return code
    if not model:
        raise ConfigError("set MODEL_PATH to a Hugging Face folder or id, or CONVERT=1 with SAVE_PATH, HF_CKPT and "
                          "SINGLE_ITER")
    if not config.data_root:
        raise ConfigError("set DATA_ROOT to the folder of eval_<length>.json")
    output = Path(os.environ.get("RESULTS") or "results", os.environ.get("SAVE_FILE") or Path(model).name)
    return command("eval", evaluate, "--model", model, "--output", str(output))


# --- both -----------------------------------------------------------------------------------------------------------


def convert(config: Config, model: Path, *options: str) -> int:
    """Convert a checkpoint of SAVE_PATH, unless ``model`` is there; FORCE=1 replaces it."""
    if (model / "config.json").is_file() and not flag("FORCE"):
        say(f"{model} is there already")
        return 0
    if not config.hf_ckpt:
        raise ConfigError("set HF_CKPT to the Hugging Face folder that training started from")

    from ..checkpoints.convert import main  # which imports megatron-core for seconds

    force = ["--force"] * flag("FORCE")
    return command("convert", main, "--input", config.save_path, "--hf", config.hf_ckpt, *options, *force)


def pushing() -> list[str]:
    """The options that upload a model, if PUSH_TO_HUB is set."""
    name = os.environ.get("PUSH_TO_HUB")
    return ["--push-to-hub", name, *(["--private"] if flag("PRIVATE") else [])] if name else []


def command(name: str, main: Callable[[Sequence[str]], int], *arguments: str) -> int:
    """Call ``mem-agent name``, or with DRY_RUN=1 print it; its exit code."""
    if flag("DRY_RUN"):
        print(shlex.join(["mem-agent", name, *arguments]), flush=True)
        return 0
    return main(arguments)


def flag(name: str, default: str = "0") -> bool:
    return (os.environ.get(name) or default) == "1"


def say(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent run", description="What run-train.sh and run-eval.sh do.")
    parser.add_argument("what", choices=("train", "eval"))
    options = parser.parse_args(argv)
    stop_on_signals()
    config = Config.from_env()
    if options.what == "eval":
        return evaluate_model(config)
    if config.host not in ("auto", "local"):
        raise ConfigError(f"HOST={config.host}: run-train.sh and `mem-agent launch` train there")
    with pocket_profile(flag("DRY_RUN")):
        return train_here(config)


if __name__ == "__main__":
    sys.exit(main())
