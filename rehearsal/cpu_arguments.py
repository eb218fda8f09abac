"""What a rehearsal adds to the command line of the host's ``train.py``: what a CPU cannot do as a GPU does."""

from __future__ import annotations

COMMON = (
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
"""Megatron's flags for both hosts: layers without Transformer Engine, and no CUDA kernel in their place."""

HOST_SETTINGS = {"bf16": False}
"""In the ``--custom-config-path`` YAML, which the hosts read after they have chosen bf16 by themselves."""


def arguments_for(host: str, engine_port: int) -> list[str]:
    """Flags that win over the cluster's by coming last.

    Args:
        engine_port: where slime's engine has been started on this machine; vime starts its own.
    """
    if host == "slime":
        return [*COMMON, "--rollout-external-engine-addrs", f"127.0.0.1:{engine_port}"]
    return [*COMMON, "--distributed-backend", "gloo"]


def variables_for(host: str, prefix: str) -> dict[str, str]:
    """What the job's processes find in their environment: one thread each, nothing but loopback, nothing compiled."""
    variables = {
        "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "TORCHDYNAMO_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled",
        "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore",
    }
    return variables
