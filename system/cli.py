"""How every command begins and ends: settings of a recipe, the process, signals, one line on standard error, a code.

Exit codes: 130 after an interrupt; 1 after an error that the pack raised for the user (``errors.py``) or a file that
is missing or closed to the user; 141 and no line where the reader of standard output has left, as ``head`` does. Every
other error is unexpected and keeps its traceback.

SIGINT, SIGTERM and a closed terminal's SIGHUP end a command once, in order: the first raises ``KeyboardInterrupt`` in
the main thread, or cancels what ``run_stoppable`` runs; later ones are ignored, so that stopping servers is not cut
short by a second Ctrl-C. An exception that arrives inside a callback of a library is lost there, so a long loop calls
``stop_if_asked`` between its steps.

A recipe is a file of ``NAME=value`` lines, in which ``${NAME}`` and ``${NAME:-text}`` are replaced. Nothing is run. A
variable that stands in the environment, if only as an empty one, keeps its value, and ``${NAME}`` then stands for
that; ``${PACK_DIR}`` is the pack's folder.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from .errors import ConfigError, MemAgentError

P = ParamSpec("P")
T = TypeVar("T")
PACK = Path(__file__).resolve().parents[1]
READER_GONE = 141
"""What a shell gives for SIGPIPE."""
_asked = False
"""Whether a signal has come."""
_task: asyncio.Task[Any] | None = None
"""What ``run_stoppable`` runs."""


def one_line_errors(
    interrupted: str, codes: Mapping[type[Exception], int] = {}
) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Decorates a command's ``main``.

    Args:
        interrupted: what an interrupt leaves behind and how to go on.
        codes: exit codes other than 1, by kind of error; the first that fits counts.
    """

    def decorate(main: Callable[P, int]) -> Callable[P, int]:
        @functools.wraps(main)
        def ending(*args: P.args, **kwargs: P.kwargs) -> int:
            try:
                code = main(*args, **kwargs)
                sys.stdout.flush()
                return code
            except KeyboardInterrupt:
                print(f"interrupted; {interrupted}", file=sys.stderr)
                return 130
            except BrokenPipeError:
                output = select.poll()
                output.register(sys.stdout, 0)  # errors are reported without being asked for
                if not output.poll(0):
                    raise
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return READER_GONE
            except (MemAgentError, FileNotFoundError, PermissionError) as error:
                message = str(error)
                if not isinstance(error, MemAgentError):
                    if error.filename is None:
                        raise
                    message = f"{error.filename}: {error.strerror}"
                print("error:", " ".join(message.split()), file=sys.stderr)
                return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)

        return ending

    return decorate


# --- signals ------------------------------------------------------------------------------------------------------


def stop_on_signals() -> None:
    """Call in a command's main thread. Under nohup SIGHUP stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN):
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        return
    _asked = True
    if _task is None:
        raise KeyboardInterrupt
    _task.get_loop().call_soon_threadsafe(_task.cancel)


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt if a signal has come."""
    if _asked:
        raise KeyboardInterrupt


def run_stoppable(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, with a signal cancelling ``main`` where it waits instead of raising in whatever task runs.

    Raises:
        KeyboardInterrupt: a signal came, and ``main`` has cleaned up.
    """
    global _task
    stop_on_signals()
    with asyncio.Runner() as runner:
        task = _task = runner.get_loop().create_task(main)
        if _asked:
            task.cancel()
        try:
            result = runner.get_loop().run_until_complete(task)
        except asyncio.CancelledError:
            stop_if_asked()
            raise
        finally:
            _task = None
    stop_if_asked()
    return result


# --- settings and options --------------------------------------------------------------------------------------------


def use_recipe() -> None:
    """Add the variables of RECIPE to the environment, once. Raises ConfigError."""
    if path := os.environ.get("RECIPE"):
        os.environ.update(load_recipe(path))
        os.environ["RECIPE"] = os.devnull  # what this process starts has the variables, and may unset one


def load_recipe(path: str) -> dict[str, str]:
    """The variables that the recipe adds to the environment. Raises ConfigError."""
    from dotenv.main import DotEnv  # here: without a recipe a host's Python need not have it
    from dotenv.parser import parse_stream

    os.environ.setdefault("PACK_DIR", str(PACK))
    try:
        text = Path(path).read_text()
    except (OSError, ValueError) as error:
        raise ConfigError(f"RECIPE={path!r} cannot be read: {error}; {PACK / 'recipes'} has some") from None
    for line in parse_stream(StringIO(text)):
        if line.error or (line.key and (line.value is None or not line.key.isidentifier())):
            raise ConfigError(f"RECIPE={path!r}: {line.original.string.strip()!r} is not a line NAME=value")
    recipe = DotEnv(None, stream=StringIO(text), override=False).dict()
    if (given := os.environ.get("TRAIN_DATA")) and Path(given).is_dir():  # it brings evaluation files of its own
        recipe = {name: value for name, value in recipe.items() if name not in ("DATA_ROOT", "LENGTH", "POCKET_DATA")}
    return {name: value for name, value in recipe.items() if value is not None and name not in os.environ}


def whole_number(text: str, least: int = 0) -> int:
    """``parser.add_argument("--seed", type=whole_number)``"""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: a whole number at least {least}")
    return int(text)


def positive_number(text: str) -> int:
    return whole_number(text, least=1)


# --- the process, and what it starts --------------------------------------------------------------------------------

_QUIET = (UserWarning, FutureWarning, DeprecationWarning)
"""Warnings of libraries about their own internals are no news to users of the pack."""
_settled: set[str] = set()
"""Variables that ``settle_process`` has set, and not the user."""
GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
"""NVIDIA's; in WSL; AMD's."""


def settle_process() -> None:
    """Call before torch, tokenizers or transformers are imported. Processes that are started inherit all of it."""
    for name, value in process_environment(1).items():
        if name not in os.environ:
            os.environ[name] = value
            _settled.add(name)
    if not sys.warnoptions:
        for kind in _QUIET:
            warnings.simplefilter("ignore", kind)


def share_cores(processes: int) -> None:
    """Give this process and those that it starts their part of the cores, unless the user has set OMP_NUM_THREADS."""
    name = "OMP_NUM_THREADS"
    if name not in os.environ or name in _settled:
        os.environ[name] = process_environment(processes)[name]
        if torch := sys.modules.get("torch"):  # it has read the variable already
            torch.set_num_threads(int(os.environ[name]))


def sees_gpu() -> bool:
    """Without torch, which reads TORCHDYNAMO_DISABLE as it is imported."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    return not hidden and any(map(Path.exists, GPU_DEVICES))


def process_environment(processes: int) -> dict[str, str]:
    """Variables for ``processes`` trainer processes on this machine; set them before python starts.

    With busy neighbours, OpenMP threads that spin at barriers train about ten times slower, so threads wait passively.
    """
    variables = {
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // processes)),
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": ",".join(f"ignore::{kind.__name__}" for kind in _QUIET),
    }
    if not sees_gpu():
        # Compiling needs a C++ compiler on a CPU and gives nothing there; on a GPU attention and vLLM are compiled.
        variables["TORCHDYNAMO_DISABLE"] = "1"
    return variables


def log_to_terminal(level: int, lines: str = "%(message)s") -> None:
    logging.basicConfig(level=level, format=lines, datefmt="%H:%M:%S")


def start_logging() -> None:
    """Terminal lines with the time of day; of several trainer processes the first speaks."""
    level = logging.INFO if os.environ.get("RANK", "0") == "0" else logging.WARNING
    log_to_terminal(level, "%(asctime)s %(message)s")
    for name in ("mbridge", "transformers", "megatron"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # What megatron-core says of missing GPU packages is no news where there is no GPU.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"megatron|mbridge")


def python_module(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command that runs ``module``, by this process's Python or by ``python``: without the working folder on the
    path, where a ``types.py`` of the user's may lie."""
    return [python or sys.executable, "-P", "-m", module, *arguments]
