"""Stopping on request: SIGINT and SIGTERM both end a command once, in order.

The first signal raises ``KeyboardInterrupt`` in the main thread; later ones are ignored, so that stopping servers is
never cut short by an impatient second Ctrl-C. Handlers are set explicitly because a shell starts background jobs with
SIGINT ignored, and Python then leaves it ignored.
"""

from __future__ import annotations

import signal
from types import FrameType


def stop_on_signals() -> None:
    """Call once, early, in a command's main thread."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
