"""Stopping on request: SIGINT, SIGTERM and a closed terminal's SIGHUP end a command once, in order.

The first signal raises ``KeyboardInterrupt`` in the main thread; later ones are ignored, so that stopping servers is
not cut short by a second Ctrl-C. An exception that arrives inside a callback of a library is lost there, so a long
loop also calls ``stop_if_asked`` between its steps.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_asked = False


def stop_on_signals() -> None:
    """Call once, early, in a command's main thread. Under nohup SIGHUP stays ignored."""
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
