"""How a command ends: one line for what the user can mend, a traceback for the unexpected, in order after a signal."""

import subprocess
import sys
import textwrap

import pytest

COMMAND = """
    import asyncio, os, resource, signal, sys
    from pathlib import Path
    from mem_agent.system.cli import one_line_errors, run_stoppable, stop_on_signals
    from mem_agent.system.concurrency import gather_or_cancel
    from mem_agent.system.errors import ConfigError
    from mem_agent.system.files import append_whole, write_atomically

    @one_line_errors("the same command goes on")
    def main():
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
        stop_on_signals()
        BODY
        return 0

    sys.exit(main())
"""


def run(body: str, *, stdout=subprocess.PIPE) -> subprocess.CompletedProcess:
    code = textwrap.dedent(COMMAND).replace("BODY", textwrap.indent(textwrap.dedent(body), "    ").strip())
    return subprocess.run([sys.executable, "-c", code], stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("body", "code", "named"), [
    ("raise ConfigError('LR=-1: allowed: above 0')", 1, "LR=-1"),
    ("open('/nowhere/a')", 1, "/nowhere/a"),
    ("raise KeyboardInterrupt", 130, "the same command goes on"),
])
def test_what_the_user_can_mend_is_one_line(body, code, named):
    done = run(body)
    assert done.returncode == code and named in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("body", ["raise OSError('of a library')", "raise FileNotFoundError('no path')", "1 / 0"])
def test_what_nobody_expected_keeps_its_traceback(body):
    done = run(body)
    assert done.returncode == 1 and done.stderr.startswith("Traceback") and "in main" in done.stderr


@pytest.mark.parametrize(("writes", "left"), [
    (["write_atomically(path, bytes(5000))"], []),
    (["append_whole(path.open('ab', buffering=0), bytes(998))"] * 2, [998]),
])
def test_a_full_disk_is_one_line_with_the_file_and_no_half_of_a_write(tmp_path, writes, left):
    done = run(f"""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        path = Path({str(tmp_path / 'rows')!r})
        {'; '.join(writes)}
    """)
    assert done.returncode == 1 and str(tmp_path / "rows") in done.stderr and done.stderr.count("\n") == 1
    assert [file.stat().st_size for file in tmp_path.iterdir()] == left


def test_a_reader_that_leaves_is_no_error():
    with subprocess.Popen(["head", "-c", "1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as head:
        done = run("for _ in range(10**6): print('line')", stdout=head.stdin)
        head.stdin.close()
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_among_many_tasks_is_one_line_after_their_clean_up(name):
    done = run(f"""
        async def work(number):
            try:
                await asyncio.sleep(0.01 * number)
                if number == 3:
                    os.kill(os.getpid(), signal.{name})
                    os.kill(os.getpid(), signal.{name})
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(0)
                print('left', number, flush=True)
        run_stoppable(asyncio.sleep(0))
        run_stoppable(gather_or_cancel(*(work(number) for number in range(8))))
    """)
    assert (done.returncode, done.stderr) == (130, "interrupted; the same command goes on\n")
    assert sorted(done.stdout.splitlines()) == [f"left {number}" for number in range(8)]
