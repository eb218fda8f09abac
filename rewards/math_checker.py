"""Asks a process of its own whether two answers are equal (``math_worker.py``), and never waits long for it.

The process is started with the first question and serves all threads, one question at a time. A question that takes
longer than LIMIT_S is answered no; if the process does not say so itself, it is ended and the next question starts
another. It reads nothing but questions, so it ends when this process does, however that ends.

A fresh interpreter and no ``multiprocessing``: a fork would inherit the caller's threads' locks, devices and file
locks, a spawn would import the caller's main module, which is torch and more.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from functools import lru_cache

from ..system.errors import MemAgentError
from ..system.process_environment import without_secrets
from . import math_worker

logger = logging.getLogger(__name__)

LIMIT_S = 5
"""Seconds for a question: LightEval's own limit; the Qwen2.5-Math harness gives 3."""
_OF_A_REPLY = 2
"""Times as long all questions about a reply may take: a gold has up to two, and most take a hundredth of a second."""
_MORE_S = 1.0
"""What the process has beyond it to say that it ran out of time."""
_START_S = 120.0
"""Importing sympy takes a second, or many where cores are busy."""
_TRIES = 2
"""A process may have died since the last question, or of this one."""
MOST_CHARACTERS = 10_000
"""A longer text is no answer; of a whole reply the end counts."""


class NoWorker(MemAgentError):
    """Nobody compares answers."""


class _Worker:
    def __init__(self) -> None:
        command = [sys.executable, "-P", math_worker.__file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
            encoding="utf-8", env=without_secrets(os.environ),
        )
        if self.ask("equal", "1", "1", _START_S) is None:
            self.stop()
            raise NoWorker("the process that compares answers did not start; is math-verify installed?")

    def ask(self, how: str, text: str, gold: str, limit: float) -> bool | None:
        """The verdict; None where the process has died or is out of time."""
        assert self._process.stdin and self._process.stdout
        question = {"how": how, "text": text, "gold": gold, "limit": LIMIT_S}
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            waiting = select.poll()  # which a process with thousands of sockets may use
            waiting.register(self._process.stdout, select.POLLIN | select.POLLHUP)
            verdict = self._process.stdout.readline() if waiting.poll(1000 * limit) else ""
        except OSError:
            return None
        return verdict.strip() == "1" if verdict else None

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:  # what was still to be written
                    pass


_lock = threading.Lock()
_worker: _Worker | None = None


class Questions:
    """Those about one reply, however many golds its row has: once they have taken too long all are answered no."""

    def __init__(self) -> None:
        self._left = float(_OF_A_REPLY * LIMIT_S)

    def equal(self, how: str, text: str, gold: str) -> bool:
        """As ``math_equal``."""
        if self._left <= 0:
            return False
        verdict, seconds = _asked(how, _end_of(how, text), gold)
        self._left -= seconds
        return verdict


def math_equal(how: str, text: str, gold: str) -> bool:
    """Whether ``text`` is worth ``gold`` by one of ``math_worker.HOW``; no after LIMIT_S.

    Raises:
        NoWorker: the process cannot be started.
    """
    return _asked(how, _end_of(how, text), gold)[0]


def _end_of(how: str, text: str) -> str:
    return text[-MOST_CHARACTERS:] if how == "strict" else text


@lru_cache(maxsize=1024)
def _asked(how: str, text: str, gold: str) -> tuple[bool, float]:
    """The verdict, and the seconds that the process had for it."""
    global _worker
    if len(text) > MOST_CHARACTERS or len(gold) > MOST_CHARACTERS:
        return False, 0.0
    seconds = 0.0
    with _lock:
        for _ in range(_TRIES):
            _worker = _worker or _Worker()
            began = time.monotonic()
            try:
                verdict = _worker.ask(how, text, gold, LIMIT_S + _MORE_S)
            except BaseException:  # its verdict would be taken for that of the next question
                _worker.stop()
                _worker = None
                raise
            seconds += time.monotonic() - began
            if verdict is not None:
                return verdict, seconds
            _worker.stop()
            _worker = None
            if seconds > LIMIT_S:
                break
    logger.info("nobody could compare %.80r with %.80r", text, gold)
    return False, seconds


def stop_worker() -> None:
    """End the process, if there is one; the next question starts another."""
    global _worker
    with _lock:
        if _worker is not None:
            _worker.stop()
        _worker = None


def _leave_to_parent() -> None:
    """A forked copy of this process asks a worker of its own, and never ends its parent's."""
    global _lock, _worker
    _lock, _worker = threading.Lock(), None


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(stop_worker)
