"""A request to stop is not lost, wherever it arrives."""

import os
import subprocess
import sys
import textwrap

import pytest

from mem_agent.tests.helpers.patience import HANGS_AFTER_S

LOST_IN_A_FINALISER = """
    import os, signal, sys
    from mem_agent.system.signals import stop_if_asked, stop_on_signals

    class Dying:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            sum(range(1000))

    stop_on_signals()
    stop_if_asked()
    Dying()
    print("went on")
    try:
        stop_if_asked()
    except KeyboardInterrupt:
        print("stopped")
"""


def test_an_interrupt_inside_a_finaliser_stops_the_next_step():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(LOST_IN_A_FINALISER)], capture_output=True, text=True,
                          env=os.environ | {"PYTHONWARNINGS": "ignore"})
    assert done.stdout.split("\n")[:2] == ["went on", "stopped"], done.stderr


MANY_TASKS = """
    import asyncio, os, signal, sys
    from mem_agent.system.signals import run_stoppable, stop_on_signals
    from mem_agent.system.one_line_errors import one_line_errors
    from mem_agent.system.gather import gather_or_cancel

    async def work(number):
        try:
            for step in range(1000):
                if (number, step) == (3, 5):
                    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
                await asyncio.sleep(0.001)
        finally:
            print(f"left {number}", flush=True)

    async def all_of_it():
        try:
            await gather_or_cancel(*(work(number) for number in range(8)))
        finally:
            print("cleaned", flush=True)

    @one_line_errors("nothing is lost")
    def main():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
        stop_on_signals()
        run_stoppable(asyncio.sleep(0))
        run_stoppable(all_of_it())
        return 0

    sys.exit(main())
"""


def test_a_command_whose_output_is_closed_says_nothing_and_ends_well():
    module = "mem_agent.system.one_line_errors"
    code = f"import sys; from {module} import one_line_errors as told; sys.exit(told('')(lambda: 0)())"
    done = subprocess.run(["sh", "-c", '"$0" -c "$1" >&-', sys.executable, code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_among_many_tasks_is_one_line_after_their_clean_up(name):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(MANY_TASKS), name], capture_output=True, text=True)
    assert done.returncode == 130 and done.stderr == "interrupted; nothing is lost\n"
    assert sorted(done.stdout.split("\n")[:-2]) == [f"left {n}" for n in range(8)]
    assert done.stdout.split("\n")[-2] == "cleaned"


ANOTHER_AT_STEP = """
    import os, signal, sys
    from mem_agent.system.signals import stop_on_signals

    left = int(sys.argv[1])

    def another(frame, event, arg):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return another

    stop_on_signals()
    sys.settrace(another)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        sys.settrace(None)
        print("stopped once")
"""


def test_a_signal_that_comes_while_one_is_handled_neither_waits_for_it_nor_counts():
    for step in range(1, 25):
        command = [sys.executable, "-c", textwrap.dedent(ANOTHER_AT_STEP), str(step)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S)
        assert done.stdout == "stopped once\n", (step, done.stderr)


LOST_BEFORE_OR_LATE = """
    import asyncio, os, signal, sys
    from mem_agent.system.signals import run_stoppable, stop_on_signals

    class Dying:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            sum(range(1000))

    async def main():
        print("begun")
        loop = asyncio.get_running_loop()
        if sys.argv[1] == "late":
            loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0)
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                pass

    stop_on_signals()
    if sys.argv[1] == "before":
        Dying()
    try:
        run_stoppable(main())
        print("went on")
    except KeyboardInterrupt:
        print("stopped")
"""


@pytest.mark.parametrize("when,printed", [("before", ["stopped"]), ("late", ["begun", "stopped"])])
def test_a_request_lost_before_or_swallowed_inside_still_stops(when, printed):
    command = [sys.executable, "-c", textwrap.dedent(LOST_BEFORE_OR_LATE), when]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore"})
    assert done.stdout.split() == printed, done.stderr


BOTH_AT_ONCE = """
    import os, signal, sys
    from mem_agent.system.one_line_errors import one_line_errors
    from mem_agent.system.signals import stop_on_signals

    @one_line_errors("nothing was lost")
    def main():
        stop_on_signals()
        both = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)

    sys.exit(main())
"""


def test_a_group_s_ctrl_c_and_the_signal_that_a_script_forwards_are_one_line():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(BOTH_AT_ONCE)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted; nothing was lost\n")
