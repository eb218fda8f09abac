"""Work on forked processes: order, bounded memory, and no process that outlives its parent."""

import os
import subprocess
import sys

import pytest

from mem_agent.system.errors import MemAgentError
from mem_agent.system.forked_map import WorkersDied, in_order
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order(processes):
    factor = 3  # a closure, which could not be pickled
    with in_order(lambda n: n * factor, range(50), processes) as results:
        assert list(results) == [n * 3 for n in range(50)]


def test_tasks_are_taken_only_as_results_are():
    taken = []
    with in_order(lambda n: n, (taken.append(n) or n for n in range(1000)), processes=2) as results:
        assert next(results) == 0 and len(taken) <= 8


def raise_error(_):
    raise MemAgentError("no")


def test_errors_cross_over_and_death_is_one_line():
    with pytest.raises(MemAgentError, match="no"), in_order(raise_error, range(3), processes=2) as results:
        list(results)
    with pytest.raises(WorkersDied, match="--processes 1"), in_order(os._exit, [1, 1, 1], processes=2) as results:
        list(results)


KILLED = """
import os, signal, time
from mem_agent.system import forked_map

inherit = forked_map._inherit
forked_map._inherit = lambda *arguments: (time.sleep({late}), inherit(*arguments))
with forked_map.in_order(lambda n: n, [1], processes=2) as results:
    {work}
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("late", "work"), [(0, "next(results)"), (1, "pass")], ids=["at work", "just forked"])
def test_workers_die_with_their_parent(late, work):
    """They have its output open, which ends with the last of them."""
    code = KILLED.format(late=late, work=work)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=HANGS_AFTER_S)
    assert (ended.returncode, ended.stderr) == (-9, b"")
