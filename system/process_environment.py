"""What this process and those that it starts find in their environment: threads that wait passively, no chatter.

With busy neighbours, OpenMP threads that spin at barriers train about ten times slower. Processes that are started
inherit all of it; variables that the user has set stay.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

_QUIET = (UserWarning, FutureWarning, DeprecationWarning)
"""Warnings of libraries about their own internals are no news to users of the pack."""
_settled: set[str] = set()
"""Variables that ``settle_process`` has set, and not the user."""


def settle_process() -> None:
    """Call before torch, tokenizers or transformers are imported."""
    told = os.environ.get("TRAIN_PROCS", "")
    for name, value in process_environment(int(told) if told.isdecimal() else 1).items():
        if name not in os.environ:
            os.environ[name] = value
            _settled.add(name)
    if not sys.warnoptions:
        for kind in _QUIET:
            warnings.simplefilter("ignore", kind)


def share_cores(processes: int) -> None:
    """Give this process and those that it starts their part of the cores, unless the user has set OMP_NUM_THREADS."""
    name = "OMP_NUM_THREADS"
    if name in os.environ and name not in _settled:
        return
    os.environ[name] = process_environment(processes)[name]
    if torch := sys.modules.get("torch"):  # it has read the variable already
        torch.set_num_threads(int(os.environ[name]))


def process_environment(processes: int) -> dict[str, str]:
    """Variables for ``processes`` trainer processes on this machine; set them before python starts."""
    cores = len(os.sched_getaffinity(0))
    variables = {
        "OMP_NUM_THREADS": str(max(1, cores // max(1, processes))),
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": ",".join(f"ignore::{kind.__name__}" for kind in _QUIET),
    }
    # Compiling needs a C++ compiler on a CPU and gives nothing there; on a GPU attention and vLLM are compiled.
    return variables if has_gpu() else variables | {"TORCHDYNAMO_DISABLE": "1"}


def has_gpu() -> bool:
    """Whether this process can see one, asked without torch: it reads TORCHDYNAMO_DISABLE as it is imported."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    return not hidden and any(map(Path.exists, GPU_DEVICES))


GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
"""NVIDIA's; in WSL; AMD's."""
