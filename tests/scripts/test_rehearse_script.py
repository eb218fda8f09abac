"""``REHEARSE=1 bash run-train.sh``: what it would install and run, and what it refuses."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = ("PATH", "HOME", "VENV", "PYTHONPATH", "TMPDIR")


def rehearse(tmp_path, **env):
    clean = {name: os.environ[name] for name in KEPT if name in os.environ}
    return subprocess.run(
        ["bash", str(ROOT / "run-train.sh")], cwd=tmp_path, capture_output=True, text=True,
        env=clean | {"REHEARSE": "1", "DRY_RUN": "1", "SAVE_PATH": str(tmp_path / "run"), **env},
    )


@pytest.mark.parametrize("env,reason", [
    ({}, "REHEARSE=1 rehearses a host's job: set HOST to slime or vime"),
    ({"HOST": "local"}, "set HOST to slime or vime"),
    ({"HOST": "slime", "HOSTS_VENV": "/a folder/venv"}, "Ray cannot run from a path with a blank; set HOSTS_VENV"),
])
def test_what_cannot_be_rehearsed_is_one_line(env, reason, tmp_path):
    done = rehearse(tmp_path, **env)
    assert done.returncode == 1 and reason in done.stderr.splitlines()[-1]


def test_a_dry_run_says_what_it_would_install(tmp_path):
    done = rehearse(tmp_path, HOST="slime", HOSTS_VENV=str(tmp_path / "hosts"), SGLANG_VENV=str(tmp_path / "sglang"))
    assert done.returncode == 0, done.stderr
    assert "install_hosts" in done.stdout and "install_sglang" in done.stdout
    assert not (tmp_path / "hosts").exists()


@pytest.mark.parametrize("host,python", [("slime", "/opt/sglang/bin/python"), ("vime", "")])
def test_sglang_is_not_installed_where_it_is_there_or_not_needed(host, python, tmp_path):
    done = rehearse(tmp_path, HOST=host, HOSTS_VENV=str(tmp_path / "hosts"), SGLANG_PYTHON=python)
    assert "install_hosts" in done.stdout and "install_sglang" not in done.stdout
