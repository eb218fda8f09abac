"""Stopping on request: SIGINT, SIGTERM and a closed terminal's SIGHUP end a command once, in order.

The first signal raises ``KeyboardInterrupt`` in the main thread; later ones are ignored, so that stopping servers is
never cut short by an impatient second Ctrl-C. An exception that arrives inside a callback of a library (a weak
reference's, a finaliser's) is lost there, so a long loop also asks ``stop_if_asked`` between its steps. Handlers are
set explicitly because a shell starts background jobs with SIGINT ignored, and Python then leaves it ignored.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_asked = threading.Event()


def stop_on_signals() -> None:
    """Call once, early, in a command's main thread."""
    for number in _STOPPING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt if a signal has come."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _interrupt(number: int, frame: FrameType | None) -> None:
    _asked.set()
    for each in _STOPPING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
