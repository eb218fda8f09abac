"""The environment of the scripts: what is installed when. pip only notes what it is told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = """
import os, pathlib, sys
with open(pathlib.Path(__file__).parents[1] / "told", "a") as told:
    print(*sys.argv[4:], file=told)
sys.exit(os.environ.get("PIP_FAILS") in sys.argv)
"""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH = "torch==2.13.0"


@pytest.fixture
def venv(tmp_path):
    folder = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (folder / "bin" / "pip").touch(0o755)
    pip = site(folder) / "pip"
    pip.mkdir()
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(PIP)
    return folder


def site(venv):
    return next(venv.glob("lib/python3*/site-packages"))


def told(venv):
    """What pip was told since the last call."""
    log = site(venv) / "told"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    for name in ("_common.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "nvidia-smi").write_text("#!/bin/sh\nexit 1\n")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def setup(checkout, venv, *flavour, **env):
    """Exit status and the last line of a script that sets up its environment."""
    clean = {name: value for name, value in os.environ.items() if name not in ("TORCH_INDEX", "DRY_RUN")}
    clean |= {"VENV": str(venv), "INSTALL_VENV": "1", "PATH": f"{checkout}:{os.environ['PATH']}"} | env
    command = ["bash", "-c", 'source "$0/_common.sh"; setup_python "$@"', str(checkout), *flavour]
    done = subprocess.run(command, env=clean | {"PYTHON": sys.executable}, capture_output=True, text=True)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1:]


@pytest.mark.parametrize("index", [CPU_INDEX, "none"])
def test_torch_comes_first_from_its_own_index_then_the_pins_then_the_checkout(checkout, venv, index):
    assert setup(checkout, venv, TORCH_INDEX=index)[0] == 0
    first = [] if index == "none" else [f"--no-deps --index-url {index} --retries 0 --timeout 10 {TORCH}"]
    pins = f"--no-deps -r {checkout}/requirements/cpu.txt"
    assert told(venv) == [*first, TORCH, pins, f"--no-deps --no-build-isolation --editable {checkout}"]


def test_an_installation_that_fails_halfway_is_begun_again(checkout, venv):
    code, (line,) = setup(checkout, venv, PIP_FAILS=f"{checkout}/requirements/cpu.txt")
    assert code == 1 and line.startswith(f"error: the installation into {venv} failed")
    told(venv)
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4


def test_a_second_start_finds_it_ready_until_pins_change(checkout, venv):
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4
    assert setup(checkout, venv) == (0, []) and told(venv) == []
    assert setup(checkout, venv, "dev")[0] == 0
    assert told(venv) == [f"--no-deps -r {checkout}/requirements/dev.txt"]
    pins = checkout / "requirements" / "cpu.txt"
    pins.write_text(pins.read_text().replace("orjson==", "orjson==9."))
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4


def test_an_environment_of_the_users_own_is_left_alone(checkout, venv):
    assert setup(checkout, venv, INSTALL_VENV="0") == (0, []) and told(venv) == []


def test_a_dry_run_installs_nothing(checkout, venv):
    assert setup(checkout, venv, DRY_RUN="1") == (0, ["install_pack cpu "]) and told(venv) == []
