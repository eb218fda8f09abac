"""The environment of the scripts: what is installed when, and by what. pip and uv only note what they are told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = """
import os, pathlib, sys
with open(os.environ["TOLD"], "a") as told:
    print("pip", *sys.argv[4:], file=told)
sys.exit(os.environ.get("FAILS") in sys.argv)
"""
UV = """#!/bin/sh
shift 5
echo "uv $*" >>"$TOLD"
[ "$UV_FAILS" != 1 ]
"""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH = "torch==2.13.0"


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    for name in ("_common.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def venv(tmp_path):
    folder = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (folder / "bin" / "pip").touch(0o755)
    pip = next(folder.glob("lib/python3*/site-packages")) / "pip"
    pip.mkdir()
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(PIP)
    return folder


@pytest.fixture
def setup(tmp_path, checkout, venv):
    """``setup(flavour...)``: (exit code, what pip and uv were told) of a script that sets up its environment."""
    programs, log = tmp_path / "programs", tmp_path / "told"
    programs.mkdir()
    for name, text in {"nvidia-smi": "#!/bin/sh\nexit 1\n", "uv": UV}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def start(*flavour, **env):
        clean = {name: value for name, value in os.environ.items() if name not in ("TORCH_INDEX", "DRY_RUN")}
        clean |= {"VENV": str(venv), "INSTALL_VENV": "1", "PATH": f"{programs}:{os.environ['PATH']}",
                  "PYTHON": sys.executable, "TOLD": str(log), "PIP_INDEX_URL": "https://mirror"}
        command = ["bash", "-c", 'source "$0/_common.sh"; setup_python "$@"', str(checkout), *flavour]
        done = subprocess.run(command, env=clean | env, capture_output=True, text=True)
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return done.returncode, [line.replace(str(checkout), "CHECKOUT") for line in lines]

    return start


FIRST = f"pip --no-deps --index-url {CPU_INDEX} --retries 0 --timeout 10 {TORCH}"
PINS = "--no-deps -r CHECKOUT/requirements/cpu.txt"
PACK = "--no-deps --no-build-isolation --editable CHECKOUT"
BY_UV = [f"pip {TORCH}", f"uv {PINS}", f"uv {PACK}"]


@pytest.mark.parametrize("env,told", [
    ({}, [FIRST, *BY_UV]),
    ({"TORCH_INDEX": "none"}, BY_UV),
    ({"TORCH_INDEX": "none", "UV_FAILS": "1"},
     [f"pip {TORCH}", f"uv {PINS}", f"pip {PINS}", f"uv {PACK}", f"pip {PACK}"]),
])
def test_torch_comes_first_then_the_pins_then_the_checkout(setup, env, told):
    assert setup(**env) == (0, told)


def test_an_installation_that_fails_halfway_is_begun_again(setup, checkout):
    pins = f"{checkout}/requirements/cpu.txt"
    code, told = setup(FAILS=pins, UV_FAILS="1")
    assert code == 1 and told[-1] == f"pip {PINS}"
    assert setup() == (0, [FIRST, *BY_UV])


def test_a_second_start_finds_it_ready_until_pins_change(setup, checkout):
    assert setup() == (0, [FIRST, *BY_UV])
    assert setup() == (0, [])
    assert setup("dev") == (0, ["uv --no-deps -r CHECKOUT/requirements/dev.txt"])
    pins = checkout / "requirements" / "cpu.txt"
    pins.write_text(pins.read_text().replace("orjson==", "orjson==9."))
    assert setup() == (0, [FIRST, *BY_UV])


@pytest.mark.parametrize("env", [{"INSTALL_VENV": "0"}, {"DRY_RUN": "1"}])
def test_an_environment_of_the_users_own_is_left_alone_and_a_dry_run_installs_nothing(setup, env):
    assert setup(**env) == (0, [])
