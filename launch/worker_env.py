"""The environment of every process of a host's job, in addition to its own machine's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..config import variable_names

_PASSED = ("NCCL_", "GLOO_", "HF_", "WANDB_", "VLLM_", "SGLANG_", "SGL_", "TRANSFORMERS_", "TORCH_", "PYTORCH_")
_KEYS = ("_TOKEN", "_KEY")
"""A job's environment is shown in Ray's dashboard."""


def without_proxy(env: Mapping[str, str], *hosts: str) -> dict[str, str]:
    """The variables by which requests to ``hosts`` and to this machine go past the user's proxy."""
    own = env.get("no_proxy") or env.get("NO_PROXY")
    value = ",".join(dict.fromkeys(["127.0.0.1", "localhost", *hosts, *([own] if own else [])]))
    return {"no_proxy": value, "NO_PROXY": value}


def worker_variables(
    env: Mapping[str, str], *, python_path: str, save_path: str, master_addr: str, nvlink: bool
) -> dict[str, str]:
    """Variables for every process of the job; the user's settings of libraries win, keys stay out."""
    variables = {
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_NVLS_ENABLE": str(int(nvlink)),
        "TENSORBOARD_DIR": str(Path(save_path) / "tensorboard"),
        "MASTER_ADDR": master_addr,
        **without_proxy(env, master_addr),
    }
    # The pack's own settings travel in its YAML instead.
    own = variable_names()
    passed = {name: value for name, value in env.items() if name.startswith(_PASSED) and name not in own}
    return variables | {name: value for name, value in passed.items() if not name.endswith(_KEYS)}
