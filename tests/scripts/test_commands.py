"""One entry for every command: its help, what is imported when, the environment of a process, and how errors end."""

import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from mem_agent import __main__ as entry
from mem_agent.system.cli import settle_process

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch):
    """A command as its own process would run it, without lasting effects; gives its exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(sys, "argv", ["mem-agent"])
    monkeypatch.setattr(entry, "settle_process", lambda: None)

    def run_command(*argv):
        try:
            return entry.main(list(argv))
        except SystemExit as end:
            return end.code

    yield run_command
    for number, handler in handlers.items():
        signal.signal(number, handler)


def python(*arguments, env=None, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env, **options)


@pytest.mark.filterwarnings("ignore:'mem_agent:RuntimeWarning")  # other tests have imported it
@pytest.mark.parametrize("name", entry.COMMANDS)
def test_every_command_has_a_help_of_its_own(run, capsys, name):
    assert run(name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: mem-agent {name} [-h]")


WRONG = [
    ([], 2, "usage: mem-agent COMMAND"),
    (["tain"], 2, "error: unknown command 'tain'"),
    (["--table"], 2, "error: unknown command '--table'"),
]


@pytest.mark.parametrize("argv,code,message", WRONG)
def test_without_a_command_it_says_which_there_are(run, capsys, argv, code, message):
    assert run(*argv) == code
    printed = capsys.readouterr()
    assert printed.err.startswith(message) and not printed.out
    assert not argv or printed.err.count("\n") == 1


def test_the_list_of_commands_imports_none_of_them():
    code = "import runpy, sys; sys.argv[1:] = ['--help']\n" \
           "try: runpy.run_module('mem_agent', run_name='__main__')\n" \
           "except SystemExit: print(*sys.modules, file=sys.stderr)"
    done = python("-c", code)
    listed = [name for names in entry.GROUPS.values() for name in names]
    assert re.findall(r"^  (\S+)  ", done.stdout, re.MULTILINE) == listed
    assert len(set(listed)) == len(listed) <= 22 and set(listed) < set(entry.COMMANDS)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "mem_agent" in loaded and loaded.isdisjoint({"torch", "transformers", "numpy", "yaml"})


@pytest.mark.parametrize("command", [["-m", "mem_agent"], ["examples/mem_agent"], ["examples/another-name"]])
def test_it_runs_as_a_module_and_as_a_folder(tmp_path, command):
    (tmp_path / "examples").mkdir()
    for name in ("mem_agent", "another-name"):
        (tmp_path / "examples" / name).symlink_to(ROOT)
    done = python(*command, "config", cwd=tmp_path)
    assert done.returncode == 0 and "MEM_CHUNK_TOKENS" in done.stdout, done.stderr


# --- the process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told,share", [("", 1), ("2", 2), ("999", 999), ("0", 1), ("x", 1)])
def test_threads_share_the_cores_and_wait_passively(monkeypatch, told, share):
    monkeypatch.setattr(os, "environ", {"TRAIN_PROCS": told, "GOMP_SPINCOUNT": "7"})
    with warnings.catch_warnings(record=True) as chatter:
        settle_process()
        warnings.warn("chatter", stacklevel=1)
    assert os.environ["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // share)) and not chatter
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"]) == ("passive", "7")


# --- what is nearly a setting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "meant"), [
    ("ROLLOUT_BATCH_SZE", ["ROLLOUT_BATCH_SIZE"]), ("MEM_CHUNK_TOKEN", ["MEM_CHUNK_TOKENS"]),
    ("NUM_ROLLOUTS", ["NUM_ROLLOUT"]), ("KL_COEFF", ["KL_COEF"]), ("LR", []), ("HF_TOKEN", []), ("MODEL_PATH", []),
    ("MASTER_PORT", []), ("API_KEY", []), ("LENGTHS", []),
])
def test_a_letter_too_few_too_many_or_another_is_told(name, meant):
    assert [near for _, near in entry.near_misses([name])] == meant


def test_a_command_says_so_and_goes_on(run, monkeypatch, capsys):
    monkeypatch.setattr(os, "environ", {"EVAL_SAMPLE": "3"})
    monkeypatch.setattr(entry.runpy, "run_module", lambda name, **_: None)
    assert run("eval", "--help") == 0
    said = capsys.readouterr().err
    assert said.startswith("warning: EVAL_SAMPLE ") and "EVAL_SAMPLES" in said


# --- errors ---------------------------------------------------------------------------------------------------------


def test_an_interrupt_while_a_command_is_imported_is_one_line():
    """The handler is set because a shell's background jobs, CI among them, inherit SIGINT as ignored."""
    code = (
        "import runpy, signal, sys\nfrom mem_agent.__main__ import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "runpy.run_module = lambda *_, **__: signal.raise_signal(signal.SIGINT)\nsys.exit(main(['convert', '--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted; nothing was begun\n")
