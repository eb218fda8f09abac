"""Stopping on request: SIGINT, SIGTERM and a closed terminal's SIGHUP end a command once, in order.

The first signal raises ``KeyboardInterrupt`` in the main thread; later ones are ignored, so that stopping servers is
never cut short by an impatient second Ctrl-C. An exception that arrives inside a callback of a library (a weak
reference's, a finaliser's) is lost there, so a long loop also asks ``stop_if_asked`` between its steps. Handlers are
set explicitly because a shell starts background jobs with SIGINT ignored, and Python then leaves it ignored.
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
"""A plain flag: a second signal may come while a first is handled, where a lock would wait for itself for ever."""


def stop_on_signals() -> None:
    """Call once, early, in a command's main thread."""
    for number in _heeded():
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

    async def watched() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if _first_request():
                task.cancel()

        for number in _heeded():
            loop.add_signal_handler(number, stop)
        if _asked:
            main.close()
            stop_if_asked()
        try:
            return await main
        finally:
            for number in _heeded():
                loop.remove_signal_handler(number)

    before = {number: signal.getsignal(number) for number in _STOPPING}
    try:
        result = runner.run(watched()) if runner else asyncio.run(watched())
        stop_if_asked()
        return result
    except asyncio.CancelledError:
        stop_if_asked()
        raise
    finally:  # the loop has left the signals at their defaults
        for number, handler in before.items():
            signal.signal(number, _nothing if _asked else handler)


def _heeded() -> list[signal.Signals]:
    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in _STOPPING if not (nohup and number == signal.SIGHUP)]


def _first_request() -> bool:
    global _asked
    first, _asked = not _asked, True
    return first


def _interrupt(number: int, frame: FrameType | None) -> None:
    first = _first_request()
    for each in _STOPPING:
        signal.signal(each, _nothing)
    if first:
        raise KeyboardInterrupt


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler in place of SIG_IGN: Python complains of a signal that came just before it was ignored."""
