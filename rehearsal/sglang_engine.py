"""A real SGLang server on the CPU, from an environment of its own (requirements/sglang.txt)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..system.files import write_atomically
from ..system.processes import ChildProcess
from ..system.python_command import python_module

_STAND_INS = ("sgl_kernel", "torchvision")
"""Packages that SGLang imports and, where it computes in plain PyTorch, never calls."""
_TORCHVISION = "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n"


def start_sglang(python: str, model: Path, port: int, context: int, folder: Path, seed: int = 1) -> ChildProcess:
    """Start a server for ``model`` on 127.0.0.1; it answers ``/health`` when it is ready.

    Args:
        python: the Python of the environment with SGLang.
        context: tokens of a prompt with its reply.
        folder: for its log and stand-ins.
    """
    command = [
        *python_module("sglang.launch_server", python=python),
        "--model-path", str(model), "--host", "127.0.0.1", "--port", str(port),
        "--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native",
        "--sampling-backend", "pytorch", "--grammar-backend", "none", "--disable-overlap-schedule",
        "--max-total-tokens", str(max(16384, 16 * context)), "--context-length", str(context),
        "--random-seed", str(seed), "--sleep-on-idle",
    ]
    environment = {
        **os.environ, "PYTHONPATH": str(_write_stand_ins(folder / "stand_ins")),
        "HF_HUB_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0",
        "OMP_NUM_THREADS": "1",
    }
    return ChildProcess("sglang", command, environment, folder / "sglang.log")


def _write_stand_ins(folder: Path) -> Path:
    for name in _STAND_INS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).parent / "absent.py", folder / name / "__init__.py")
    about = folder / "torchvision-0.28.0.dist-info"  # transformers compares this version
    about.mkdir(exist_ok=True)
    write_atomically(about / "METADATA", _TORCHVISION.encode())
    return folder
