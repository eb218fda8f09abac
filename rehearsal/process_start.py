"""What each process of a rehearsed job does before it imports a framework: which part of a shim acts, and when.

Nothing is imported for it: a process that never needs a framework pays for none.
"""

from __future__ import annotations

from typing import Any

from wrapt import register_post_import_hook

_AFTER_IMPORT = {
    "torch": "cuda_shim:install",
    "megatron.core.optimizer": "cuda_shim:choose_adam",
    "megatron.core.optimizer.distrib_optimizer": "cuda_shim:save_and_load_groups",
    "slime.utils.reloadable_process_group": "cuda_shim:name_collectives",
    "slime.utils.accelerator": "slime_shim:set_cpu",
    "slime.utils.misc": "process_start:stay_on_this_machine",
    "slime.backends.sglang_utils.sglang_engine": "slime_shim:frame_weight_updates",
    "slime.backends.megatron_utils.update_weight.update_weight_from_distributed": "slime_shim:meet_on_this_machine",
    "vime.utils.reloadable_process_group": "cuda_shim:name_collectives",
    "vime.utils.misc": "process_start:stay_on_this_machine",
    "vime.backends.megatron_utils.update_weight": "vime_shim:give_weight_transfer",
    "vime.backends.megatron_utils.update_weight.update_weight_from_distributed": "vime_shim:log_devices",
    "vime.backends.vllm_utils.vllm_engine": "vime_shim:start_engines_on_cpu",
    "vllm.entrypoints.openai": "vime_shim:keep_old_places",
}
"""What is called with a module when that has been executed."""


def prepare() -> None:
    """Make this process fit for both hosts and Megatron-LM; before it imports torch."""
    for module, change in _AFTER_IMPORT.items():
        register_post_import_hook(f"{__package__}.{change}", module)


def stay_on_this_machine(module: Any) -> None:
    """Ray answers with the machine's own address, which is open to its network, even where it is told 127.0.0.1."""
    module.get_current_node_ip = lambda: "127.0.0.1"
