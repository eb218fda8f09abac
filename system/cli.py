"""How every command begins and ends: signals, what it logs, one line on standard error and an exit code.

Exit codes: 130 after an interrupt; 1 after an error that the pack raised for the user (``errors.py``) or a file that
is missing or closed to the user; 141 and no line where the reader of standard output has left, as ``head`` does. Every
other error is unexpected and keeps its traceback.

SIGINT, SIGTERM and a closed terminal's SIGHUP end a command once, in order: the first raises ``KeyboardInterrupt`` in
the main thread; later ones are ignored, so that stopping servers is not cut short by a second Ctrl-C. An exception
that arrives inside a callback of a library is lost there, so a long loop calls ``stop_if_asked`` between its steps.
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
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

from .errors import MemAgentError

P = ParamSpec("P")
T = TypeVar("T")
READER_GONE = 141
"""What a shell gives for SIGPIPE."""
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_asked = False


def run_main(main: Callable[[], int]) -> NoReturn:
    """A command as a program of its own: ``if __name__ == "__main__": run_main(main)``."""
    stop_on_signals()
    sys.exit(main())


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
                if not _reader_left():
                    raise
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


def _reader_left() -> bool:
    """Whether standard output has lost its reader; what is left for it then goes nowhere."""
    output = select.poll()
    output.register(sys.stdout, 0)  # errors are reported without being asked for
    if not output.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


# --- signals ------------------------------------------------------------------------------------------------------


def stop_on_signals() -> None:
    """Call in a command's main thread. Under nohup SIGHUP stays ignored."""
    for number in _STOPPING:
        if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN):
            signal.signal(number, _interrupt)


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt if a signal has come."""
    if _asked:
        raise KeyboardInterrupt


def run_stoppable(main: Coroutine[Any, Any, T], runner: asyncio.Runner | None = None) -> T:
    """``asyncio.run``, with a signal cancelling ``main`` where it waits instead of raising in whatever task runs.

    ``runner`` keeps one event loop, and what belongs to it, over several calls.

    Raises:
        KeyboardInterrupt: a signal came, and ``main`` has cleaned up.
    """
    loop_runner = runner or asyncio.Runner()
    before = {number: signal.getsignal(number) for number in _STOPPING}
    loop = loop_runner.get_loop()
    task = loop.create_task(main)

    def stop(number: int, frame: FrameType | None) -> None:
        if _first_request():
            loop.call_soon_threadsafe(task.cancel)

    try:
        for number in _STOPPING:
            if before[number] != signal.SIG_IGN:
                signal.signal(number, stop)
        if _asked:
            task.cancel()
        try:
            result = loop.run_until_complete(task)
        except asyncio.CancelledError:
            stop_if_asked()
            raise
        stop_if_asked()
        return result
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if runner is None:
            loop_runner.close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _first_request():
        raise KeyboardInterrupt


def _first_request() -> bool:
    global _asked
    first, _asked = not _asked, True
    return first


# --- what a command writes, takes and starts ------------------------------------------------------------------------


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


def whole_number(text: str, least: int = 0) -> int:
    """``parser.add_argument("--seed", type=whole_number)``"""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: a whole number at least {least}")
    return int(text)


def positive_number(text: str) -> int:
    return whole_number(text, least=1)


def port_number(text: str) -> int:
    if whole_number(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: 0, for a free one, to 65535")
    return int(text)


def python_module(module: str, *arguments: str, python: str = "") -> list[str]:
    """The command that runs ``module``, by this process's Python or by ``python``: without the working folder on the
    path, where a ``types.py`` of the user's may lie."""
    return [python or sys.executable, "-P", "-m", module, *arguments]
