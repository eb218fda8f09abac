"""Work shared out to forked processes, with results in order and bounded memory.

    with in_order(lambda n: n * n, [1, 2, 3], processes=2) as results:
        list(results)  ->  [1, 4, 9]

Invariants:
- results come in the order of the tasks, whatever the number of processes;
- at most three tasks per process are under way or waiting to be taken, however slow the reader is;
- ``work`` may be any closure: children inherit it, and everything it refers to, by fork; only tasks and results are
  pickled;
- children are forked on entry, before the caller starts threads; they ignore Ctrl-C, which their parent answers by
  ending them, and die with their parent, however it dies.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from .errors import MemAgentError

Task = TypeVar("Task")
Result = TypeVar("Result")
_PER_PROCESS = 3
_PR_SET_PDEATHSIG = 1
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_inherited: Callable[[Any], Any] | None = None


class WorkersDied(MemAgentError):
    """A worker process ended by itself."""


@contextmanager
def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], processes: int) -> Iterator[Iterator[Result]]:
    """``map(work, tasks)`` on several processes; in this one if ``processes`` is 1. Raises WorkersDied."""
    if processes == 1:
        yield map(work, tasks)
        return
    pool = ProcessPoolExecutor(processes, get_context("fork"), initializer=_inherit, initargs=(work, os.getpid()))
    try:
        with _signals_held():
            pool.submit(int)  # forks all processes
        yield _results(pool, iter(tasks), _PER_PROCESS * processes)
    except BrokenProcessPool:
        raise WorkersDied("a worker process died, perhaps for want of memory; set --processes 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _results(pool: ProcessPoolExecutor, tasks: Iterator[Task], ahead: int) -> Iterator[Any]:
    waiting: deque[Future[Any]] = deque()
    for task in tasks:
        if len(waiting) == ahead:
            yield waiting.popleft().result()
        waiting.append(pool.submit(_run, task))
    while waiting:
        yield waiting.popleft().result()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Stopping comes before or after: a pool interrupted between its forks would wait for children nobody ends.

    Not by a signal mask, which other threads of this process would not have.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals never interrupt this thread
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda number, _: held.append(number)) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for first in held[:1]:
            signal.raise_signal(first)


def _inherit(work: Callable[[Any], Any], parent: int) -> None:
    global _inherited
    _inherited = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be asked for
        os._exit(1)


def _run(task: Any) -> Any:
    assert _inherited is not None
    return _inherited(task)
