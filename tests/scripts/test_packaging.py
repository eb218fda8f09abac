"""The pack as it is installed: what it declares, and that it works from a folder of any name."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

from mem_agent import __main__ as entry

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMES = {"yaml": "pyyaml", "dotenv": "python-dotenv", "megatron": "megatron-core"}
"""Module -> the distribution that has it, unless their names are alike."""


def declared(requirements):
    return {canonical(Requirement(line).name) for line in requirements}


def test_a_command_without_its_extra_is_one_line(monkeypatch, capsys):
    def missing(*_, **__):
        raise ModuleNotFoundError("no", name="matplotlib.pyplot")

    monkeypatch.setattr(entry.runpy, "run_module", missing)
    monkeypatch.setattr(entry, "settle_process", lambda: None)
    monkeypatch.setattr("sys.argv", ["mem-agent"])
    assert entry.main(["report", "--help"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ") and "matplotlib: pip install 'mem-agent[all]'" in said


def pins(*names):
    lines = [line for name in names for line in (ROOT / "requirements" / name).read_text().splitlines()]
    return {canonical(line.partition("==")[0].partition("[")[0]): line.partition("==")[2]
            for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize("lists", [("cpu.txt",), ("cpu.txt", "rehearsal.txt")])
def test_what_is_pinned_satisfies_what_is_declared(lists):
    """In the pack's own environment, and in a host's, which has numpy 1."""
    pinned = pins(*lists)
    wrong = [line for line in map(Requirement, PROJECT["dependencies"])
             if pinned.get(canonical(line.name), "") not in line.specifier]
    assert wrong == []


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
