"""A request to stop is not lost, wherever it arrives."""

import os
import subprocess
import sys
import textwrap

LOST_IN_A_FINALISER = """
    import os, signal, sys
    from mem_agent.host.signals import stop_if_asked, stop_on_signals

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
