"""The environment of the scripts: what is installed when, and for which checkout. pip only notes what it is told."""

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PIP = """
import os, pathlib, sys, time
site = pathlib.Path(__file__).parents[1]
with open(site / "told", "a") as told:
    print(*sys.argv[4:], file=told)
time.sleep(float(os.environ.get("PIP_TAKES", 0)))
if os.environ.get("PIP_FAILS") in sys.argv:
    sys.exit("ERROR: pip's own line")
if "--editable" in sys.argv:
    (site / "mem_agent").unlink(missing_ok=True)
    (site / "mem_agent").symlink_to(sys.argv[-1])
"""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH = "torch==2.13.0"


def asked(index):
    return f"--no-deps --index-url {index} --retries 0 --timeout 10 {TORCH}"


@pytest.fixture
def venv(tmp_path):
    return make_venv(tmp_path / "an environment")


def make_venv(folder):
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
    return make_checkout(tmp_path / "a checkout")


def make_checkout(folder):
    folder.mkdir()
    for name in ("__init__.py", "_common.sh", "_recipe.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    gpu = folder / "bin" / "nvidia-smi"
    gpu.parent.mkdir()
    gpu.write_text("#!/bin/sh\nexit 1\n")
    gpu.chmod(0o755)
    return folder


def start(checkout, venv, *flavour, **env):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TORCH_INDEX", "DRY_RUN")}
    clean |= {"VENV": str(venv), "PYTHON": sys.executable, "PATH": f"{checkout}/bin:{os.environ['PATH']}"} | env
    command = ["bash", "-c", 'source "$0/_common.sh"; setup_python "$@"', str(checkout), *flavour]
    return subprocess.Popen(command, env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def setup(*arguments, **env):
    """Exit status and lines of a script that sets up its environment."""
    process = start(*arguments, **env)
    out, err = process.communicate()
    return process.returncode, (out + err).splitlines()


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("env,first", [
    ({}, [asked(CPU_INDEX)]),
    ({"TORCH_INDEX": "https://mirror/cpu"}, [asked("https://mirror/cpu")]),
    ({"TORCH_INDEX": "none"}, []),
    ({"TORCH_INDEX": ""}, []),
])
def test_torch_comes_first_from_its_own_index_then_the_pins_then_the_checkout(checkout, venv, env, first):
    code, lines = setup(checkout, venv, **env)
    assert (code, len(lines)) == (0, 1), lines
    pins = f"--no-deps -r {checkout}/requirements/cpu.txt"
    assert told(venv) == [*first, TORCH, pins, f"--no-deps --no-build-isolation --editable {checkout}"]


def test_an_index_that_does_not_answer_is_passed_over_with_one_line(checkout, venv):
    code, lines = setup(checkout, venv, PIP_FAILS=CPU_INDEX)
    assert (code, told(venv)[:2]) == (0, [asked(CPU_INDEX), TORCH])
    assert [line.split()[1] for line in lines] == ["installing", f"TORCH_INDEX='{CPU_INDEX}'"]


def test_an_installation_that_fails_halfway_counts_as_none(checkout, venv):
    for step in (TORCH, f"{checkout}/requirements/cpu.txt"):
        code, lines = setup(checkout, venv, PIP_FAILS=step)
        assert code == 1 and lines[-2] == "ERROR: pip's own line"
        assert lines[-1] == f"error: the installation into {venv} failed; the lines above say why"
        assert f"--editable {checkout}" not in " ".join(told(venv))
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4


def test_a_second_start_finds_it_ready_until_pins_or_dependencies_change(checkout, venv):
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4
    assert setup(checkout, venv) == (0, []) and told(venv) == []
    settings = checkout / "pyproject.toml"
    for old, new in (("line-length = 119", "line-length = 100"), ("description = ", "description = 'Other' # "),
                     ("timeout = 1200", "timeout = 60"), ("\n# ", "\n# Other: ")):
        edit(settings, old, new)
        assert setup(checkout, venv) == (0, []), old
    edit(checkout / "requirements" / "dev.txt", "ruff==", "ruff==9.")
    assert setup(checkout, venv) == (0, []) and told(venv) == []
    for file, old, new in [
        (settings, "setuptools>=77", "setuptools>=78"),
        (settings, '"orjson>=', '"orjson>=9.'),
        (settings, '"mem_agent.agents", ', ""),
        (settings, 'mem_agent = "."', 'mem_agent = "src"'),
        (checkout / "requirements" / "cpu.txt", "orjson==", "orjson==9."),
        (checkout / "_common.sh", TORCH, TORCH + "9"),
    ]:
        edit(file, old, new)
        assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4, old


def test_what_the_tests_add_has_a_stamp_of_its_own(checkout, venv):
    assert setup(checkout, venv, "dev")[0] == 0
    assert told(venv)[-1] == f"--no-deps -r {checkout}/requirements/dev.txt"
    edit(checkout / "requirements" / "dev.txt", "ruff==", "ruff==9.")
    assert setup(checkout, venv, "dev")[0] == 0
    assert told(venv) == [f"--no-deps -r {checkout}/requirements/dev.txt"]


@pytest.mark.parametrize("env", [{}, {"DRY_RUN": "1"}])
def test_the_environment_of_another_checkout_is_refused_in_one_line(tmp_path, checkout, venv, env):
    other = make_checkout(tmp_path / "other")
    assert setup(checkout, venv)[0] == 0 and told(venv)
    code, lines = setup(other, venv, **env)
    whose = f"error: VENV='{venv}' is the environment of the checkout {checkout}"
    assert (code, lines) == (1, [f"{whose}; set VENV to a folder for that of {other}"])
    assert told(venv) == [] and setup(checkout, venv) == (0, [])


def test_another_checkout_with_the_same_pins_can_use_it_through_its_path(tmp_path, checkout, venv):
    other = make_checkout(tmp_path / "mem_agent")
    assert setup(checkout, venv)[0] == 0 and told(venv)
    assert setup(other, venv, PYTHONPATH=str(tmp_path)) == (0, [])
    edit(other / "requirements" / "cpu.txt", "orjson==", "orjson==9.")
    code, lines = setup(other, venv, PYTHONPATH=str(tmp_path))
    assert code == 1 and len(lines) == 1 and f"the environment of the checkout {checkout};" in lines[0]
    assert told(venv) == []


def test_of_two_checkouts_that_start_together_one_gets_the_environment(tmp_path, checkout, venv):
    both = [start(folder, venv, PIP_TAKES="0.3") for folder in (checkout, make_checkout(tmp_path / "other"))]
    errors = [process.communicate()[1].splitlines()[-1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    assert sum("is the environment of the checkout" in line for line in errors) == 1
    assert len(told(venv)) == 4


def test_nothing_is_installed_while_a_run_uses_the_environment(checkout, venv):
    """An engine that was just starting found half of a library."""
    assert setup(checkout, venv)[0] == 0 and told(venv)
    code = 'source "$0/_common.sh"; setup_python; echo ready; read -r _ || true'
    env = os.environ | {"VENV": str(venv), "PYTHON": sys.executable, "PATH": f"{checkout}/bin:{os.environ['PATH']}"}
    with subprocess.Popen(["bash", "-c", code, str(checkout)], env=env, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as run:
        assert run.stdout.readline() == "ready\n"
        assert setup(checkout, venv) == (0, [])  # others may use it as well
        edit(checkout / "requirements" / "cpu.txt", "orjson==", "orjson==9.")
        line = f"error: VENV='{venv}' is in use by a run and lacks what this checkout asks for now; wait for its end"
        assert setup(checkout, venv) == (1, [line]) and told(venv) == []
        run.stdin.close()
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4


def test_the_environment_is_held_by_a_file_that_is_read(checkout, venv):
    """NFS refuses a shared lock on one that is open for writing alone, and not every user of a team may write it."""
    assert setup(checkout, venv)[0] == 0
    env = os.environ | {"VENV": str(venv), "PYTHON": sys.executable, "PATH": f"{checkout}/bin:{os.environ['PATH']}"}
    code = 'source "$0/_common.sh"; setup_python; cat <&"$environment_held"'
    assert subprocess.run(["bash", "-c", code, str(checkout)], env=env).returncode == 0


def test_a_file_system_without_locks_ends_nothing(checkout, venv):
    """As Lustre without its option; flock(1) says 65 there, and 1 where a lock is held."""
    without = checkout / "bin" / "flock"
    without.write_text("#!/bin/sh\necho 'flock: Function not implemented' >&2; exit 65\n")
    without.chmod(0o755)
    assert setup(checkout, venv)[0] == 0 and len(told(venv)) == 4
    assert setup(checkout, venv) == (0, []) and told(venv) == []


def test_two_starts_of_one_checkout_install_once(checkout, venv):
    both = [start(checkout, venv, PIP_TAKES="0.3") for _ in range(2)]
    assert [(process.communicate(), process.returncode)[1] for process in both] == [0, 0]
    assert len(told(venv)) == 4


def test_a_checkout_that_moved_installs_itself_again_and_says_so(tmp_path, checkout):
    make_venv(checkout / ".venv")
    assert setup(checkout, checkout / ".venv")[0] == 0
    moved = checkout.rename(tmp_path / "moved")
    told(moved / ".venv")
    code, lines = setup(moved, moved / ".venv")
    assert code == 0 and "was installed from is gone" in lines[0]
    assert told(moved / ".venv")[-1].endswith(f"--editable {moved}")
    assert setup(moved, moved / ".venv") == (0, [])


def test_a_dry_run_installs_nothing(checkout, venv):
    code, lines = setup(checkout, venv, "dev", DRY_RUN="1")
    assert (code, [shlex.split(line) for line in lines]) == (0, [
        ["install_pack", "cpu"], ["pip_install", "--no-deps", "-r", f"{checkout}/requirements/dev.txt"],
    ])
    assert told(venv) == [] and not list(venv.glob("installed-*"))


@pytest.mark.parametrize(("name", "variable"), [("pack", "VENV"), ("hosts", "HOSTS_VENV"), ("trl", "TRL_VENV")])
def test_a_folder_that_cannot_be_made_is_one_line_with_its_setting(tmp_path, name, variable):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "venv"
    code = 'source "$0/_common.sh"; install_once "$1" "$2" stamp true'
    done = subprocess.run(["bash", "-c", code, str(ROOT), str(folder), name], capture_output=True, text=True)
    line = f"error: the folder {folder} cannot be made or written to; set {variable} to one of your own\n"
    assert (done.returncode, done.stderr) == (1, line)


def pinned(name):
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return {(one := Requirement(line)).name.lower(): one for line in lines if line and not line.startswith("#")}


@pytest.mark.parametrize(("name", "extra"), [("pypdf", "crypto"), ("latex2sympy2_extended", "antlr4_13_2")])
def test_what_is_read_with_an_extra_of_a_library_is_installed_everywhere(name, extra):
    """PDFs encrypted with AES, for one. gpu.txt brings what its packages depend on, cpu.txt names it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (declared,) = [one for one in map(Requirement, project) if one.name == name]
    assert declared.extras == pinned("gpu.txt")[name].extras == {extra}
    needed = {one.name.lower() for one in map(Requirement, metadata.requires(name))
              if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""})}
    assert needed and needed <= pinned("cpu.txt").keys()
