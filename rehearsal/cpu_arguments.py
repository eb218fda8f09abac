"""What a CPU adds to a host's command line, to its configuration and to the environment of its processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_WITHOUT_CUDA_KERNELS = (
    "--spec mem_agent.rehearsal.layer_spec layers --transformer-impl local --use-cpu-initialization "
    "--no-persist-layer-norm --no-gradient-accumulation-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion "
    "--no-rope-fusion --no-masked-softmax-fusion"
)

SETTINGS = {"bf16": False}
"""Keys of the hosts' ``--custom-config-path``: their parsers have no flag for float32."""


def cpu_arguments(host: str, engine_port: int) -> list[str]:
    """Flags for the ``train.py`` of ``host`` behind the launcher's own.

    Args:
        engine_port: where slime's engine has been started on this machine; vime starts its own.
    """
    external = ["--rollout-external-engine-addrs", f"127.0.0.1:{engine_port}"]  # slime's accelerator says gloo
    return _WITHOUT_CUDA_KERNELS.split() + (external if host == "slime" else ["--distributed-backend", "gloo"])


def cpu_variables(env: Mapping[str, str]) -> dict[str, str]:
    """For every process of the job; ``env`` is where the job is made."""
    return {
        "SLIME_HOST_IP": "127.0.0.1",
        "VIME_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", "1"),  # more spin on the cores that other processes need
        "OMP_WAIT_POLICY": "passive",
        "TORCHDYNAMO_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "PATH": os.pathsep.join([str(Path(__file__).with_name("bin")), env.get("PATH", os.defpath)]),
    }
