"""Work shared out to forked processes, with results in order and bounded memory.

    with in_order(lambda n: n * n, [1, 2, 3], processes=2) as results:
        list(results)  ->  [1, 4, 9]

``work`` may be any closure: processes inherit it by fork, and only tasks and results are pickled.
"""

from __future__ import annotations

import ctypes
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

from ..system.errors import MemAgentError

Task = TypeVar("Task")
Result = TypeVar("Result")
_AHEAD = 3
"""Tasks for each process that are under way or waiting to be taken."""
_PR_SET_PDEATHSIG = 1
_work: Callable[[Any], Any] = id


@contextmanager
def in_order(work: Callable[[Task], Result], tasks: Iterable[Task], processes: int) -> Iterator[Iterator[Result]]:
    """``map(work, tasks)`` on several processes; in this one if ``processes`` is 1."""
    if processes == 1:
        yield map(work, tasks)
        return
    pool = ProcessPoolExecutor(processes, get_context("fork"), initializer=_begin, initargs=(work,))
    try:
        yield _results(pool, iter(tasks), _AHEAD * processes)
    except BrokenProcessPool:
        raise MemAgentError("a worker process died, perhaps for want of memory; set --processes 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _results(pool: ProcessPoolExecutor, tasks: Iterator[Any], ahead: int) -> Iterator[Any]:
    waiting: deque[Future[Any]] = deque(pool.submit(_run, task) for task in islice(tasks, ahead))
    while waiting:
        yield waiting.popleft().result()
        waiting.extend(pool.submit(_run, task) for task in islice(tasks, 1))


def _begin(work: Callable[[Any], Any]) -> None:
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # else a killed parent leaves its processes waiting


def _run(task: Any) -> Any:
    return _work(task)
