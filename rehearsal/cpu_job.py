"""What a job on a CPU has beside the launcher's: flags and variables; and what each of its processes does before it
imports a framework: which part of a shim acts, and when.

Nothing is imported for that: a process that never needs a framework pays for none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from wrapt import register_post_import_hook

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
        "HF_HUB_OFFLINE": "1",
    }


# --- in each process -------------------------------------------------------------------------------------------------

_AFTER_IMPORT = {
    "torch": "cuda_shim:install",
    "megatron.core.optimizer": "cuda_shim:choose_adam",
    "megatron.core.optimizer.distrib_optimizer": "cuda_shim:save_and_load_groups",
    "slime.utils.reloadable_process_group": "cuda_shim:name_collectives",
    "slime.utils.accelerator": "slime_shim:set_cpu",
    "slime.utils.misc": "cpu_job:stay_on_this_machine",
    "slime.backends.sglang_utils.sglang_engine": "slime_shim:frame_weight_updates",
    "slime.backends.megatron_utils.update_weight.update_weight_from_distributed": "slime_shim:meet_on_this_machine",
    "vime.utils.reloadable_process_group": "cuda_shim:name_collectives",
    "vime.utils.misc": "cpu_job:stay_on_this_machine",
    "vime.backends.megatron_utils.update_weight": "vime_shim:give_weight_transfer",
    "vime.backends.vllm_utils.vllm_engine": "vime_shim:start_engines_on_cpu",
    "vllm.entrypoints.openai": "vime_shim:keep_old_places",
}
"""What is called with a module when that has been executed."""


def prepare() -> None:
    """Make this process fit for both hosts and Megatron-LM; before it imports torch."""
    logging.raiseExceptions = False  # vime logs the current device as the number that it is on a GPU
    for module, change in _AFTER_IMPORT.items():
        register_post_import_hook(f"{__package__}.{change}", module)


def stay_on_this_machine(module: Any) -> None:
    """Ray answers with the machine's own address, which is open to its network, even where it is told 127.0.0.1."""
    module.get_current_node_ip = lambda: "127.0.0.1"
