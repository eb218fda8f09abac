"""One entry for every command: its help, what is imported when, the environment of a process; and how it installs."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from mem_agent import __main__ as entry
from mem_agent.system import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch):
    """A command as its own process would run it, without lasting effects; gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["mem-agent"])
    monkeypatch.setattr(entry, "settle_process", lambda: None)

    def run_command(*argv):
        try:
            return entry.main(list(argv))
        except SystemExit as end:
            return end.code

    return run_command


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **options)


@pytest.mark.filterwarnings("ignore:'mem_agent:RuntimeWarning")  # other tests have imported it
@pytest.mark.parametrize("name", entry.COMMANDS)
def test_every_command_has_a_help_of_its_own(run, capsys, name):
    assert run(name, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: mem-agent {name} [-h]")


def test_without_a_command_it_says_which_there_are(run, capsys):
    assert run() == 2 and capsys.readouterr().err.startswith("usage: mem-agent COMMAND")
    assert run("tain") == 2 and capsys.readouterr().err.startswith("error: unknown command 'tain'")


def test_the_list_of_commands_imports_none_of_them():
    code = "import runpy, sys; sys.argv[1:] = ['--help']\n" \
           "try: runpy.run_module('mem_agent', run_name='__main__')\n" \
           "except SystemExit: print(*sys.modules, file=sys.stderr)"
    done = python("-c", code)
    listed = list(entry.LISTED)
    assert re.findall(r"^  (\S+)  ", done.stdout, re.MULTILINE) == listed
    assert len(listed) <= 22 and set(listed) < set(entry.COMMANDS)
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


@pytest.mark.parametrize("name,share", [("", 1), ("OMP_WAIT_POLICY", 2), ("OMP_NUM_THREADS", None)])
def test_threads_share_the_cores_and_wait_passively_unless_the_user_says_otherwise(monkeypatch, name, share):
    monkeypatch.setattr(os, "environ", {name: "7"})
    monkeypatch.setattr(cli, "_settled", set())
    with warnings.catch_warnings(record=True) as chatter:
        cli.settle_process()
        warnings.warn("chatter", stacklevel=1)
    cli.share_cores(share or 2)
    threads = str(max(1, len(os.sched_getaffinity(0)) // share)) if share else "7"
    assert os.environ["OMP_NUM_THREADS"] == threads and not chatter
    assert os.environ["OMP_WAIT_POLICY"] == ("7" if name == "OMP_WAIT_POLICY" else "passive")


def test_what_is_nearly_a_setting_is_told_and_the_command_goes_on(run, monkeypatch, capsys):
    near = {"ROLLOUT_BATCH_SZE": "ROLLOUT_BATCH_SIZE", "MEM_CHUNK_TOKEN": "MEM_CHUNK_TOKENS", "KL_COEFF": "KL_COEF"}
    others = ("HF_TOKEN", "MODEL_PATH", "MASTER_PORT", "LENGTHS")
    monkeypatch.setattr(os, "environ", dict.fromkeys([*near, *others], "3"))
    monkeypatch.setattr(entry.importlib, "import_module", lambda name: SimpleNamespace(main=lambda arguments: 0))
    assert run("eval", "--help") == 0
    told = [re.search(r"warning: (\S+) .* (\S+)\?$", line).groups() for line in capsys.readouterr().err.splitlines()]
    assert dict(told) == near


def test_a_command_without_its_extra_is_one_line(run, monkeypatch, capsys):
    def missing(name):
        raise ModuleNotFoundError("no", name="matplotlib.pyplot")

    monkeypatch.setattr(entry.importlib, "import_module", missing)
    assert run("report", "--help") == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ") and "matplotlib: pip install 'mem-agent[all]'" in said


# --- as it is installed ----------------------------------------------------------------------------------------------


def test_it_installs_from_a_folder_of_any_name(tmp_path):
    skipped = shutil.ignore_patterns(".*", "tests", "docs", "runs", "build", "*.egg-info", "__pycache__")
    copy = shutil.copytree(ROOT, tmp_path / "some pack", ignore=skipped)
    target = tmp_path / "target"
    options = ["--no-deps", "--no-build-isolation", "--no-compile", "--target", target]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, copy], check=True, capture_output=True)
    code = "import mem_agent, sys; from mem_agent.__main__ import main; print(mem_agent.__file__); main(['config'])"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=os.environ | {"PYTHONPATH": str(target)},
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.startswith(f"{target}/mem_agent/__init__.py\n"), done.stderr
    assert "MEM_CHUNK_TOKENS" in done.stdout
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert rooms == {path.parent.name for path in target.glob("mem_agent/*/__init__.py")}
    assert (target / "mem_agent" / "recipes" / "pocket.env").is_file()
