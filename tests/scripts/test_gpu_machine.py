"""The first command on a machine with a GPU, by a stand-in for nvidia-smi."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'GPU 0: stand-in'\n")
    smi.chmod(0o755)
    for name in ("RECIPE", "HF_CKPT", "TRAIN_DATA", "HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("DRY_RUN", "1")


def first_command(venv, install):
    env = os.environ | {"VENV": str(venv), "INSTALL_VENV": install}
    done = subprocess.run(["bash", str(ROOT / "run-train.sh")], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_the_first_command_installs_the_gpu_stack_and_trains_the_pocket_profile(gpu, tmp_path):
    told = first_command(tmp_path / "venv", "1").stderr
    assert " gpu\n" in told and str(tmp_path / "venv") in told
    command = first_command(sys.prefix, "0").stdout.splitlines()[0]
    assert command.split(" -m mem_agent ")[1].split() == ["train", "--convert", "--evaluate"]
