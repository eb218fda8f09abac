"""What a CPU adds to a host's command line, to its configuration and to the environment of its processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_WITHOUT_CUDA_KERNELS = (
    "--spec", "mem_agent.rehearsal.layer_spec", "layers",
    "--transformer-impl", "local",
    "--no-persist-layer-norm",
    "--no-gradient-accumulation-fusion",
    "--no-bias-swiglu-fusion",
    "--no-bias-dropout-fusion",
    "--no-rope-fusion",
    "--no-masked-softmax-fusion",
    "--use-cpu-initialization",
)
_OF_HOST = {
    "slime": (),  # its accelerator says gloo, see ``slime_answers``
    "vime": ("--distributed-backend", "gloo"),
}
_ADDRESS = {"slime": "SLIME_HOST_IP", "vime": "VIME_HOST_IP"}

SETTINGS = {"bf16": False}
"""Keys of the hosts' ``--custom-config-path``: their parsers have no flag for float32."""


def cpu_arguments(host: str) -> list[str]:
    """Flags for the ``train.py`` of ``host`` behind the launcher's own."""
    return [*_WITHOUT_CUDA_KERNELS, *_OF_HOST[host]]


def cpu_variables(host: str, env: Mapping[str, str]) -> dict[str, str]:
    """For every process of the job; ``env`` is where the job is made."""
    return {
        _ADDRESS[host]: "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", "1"),  # more spin on the cores that other processes need
        "TORCHDYNAMO_DISABLE": "1",
        "PATH": os.pathsep.join([str(Path(__file__).with_name("bin")), env.get("PATH", os.defpath)]),
    }
