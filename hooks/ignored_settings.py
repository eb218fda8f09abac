"""A setting that the chosen host does not read is refused, so that nobody believes that it was at work.

``MASTER_ADDR``, ``RAY_ADDRESS`` and ``MEGATRON_ROOT`` are not in the table: torchrun, Ray and Megatron's own users
export them, and where a host reads none of them they mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..config import Config, ConfigError

_EMBEDDED = {
    "train_procs": "the layout follows from NUM_NODES, NUM_GPUS and TP",
    "lora_rank": "adapters are trained with HOST=local",
    "num_engines": "the number of engines follows from the GPUs",
    "engine_args": "HOST_ARGS takes the host's own --sglang-... or --vllm-... flags",
}
_OF_A_HOST = "HOST=slime and HOST=vime read it"
IGNORED: Mapping[str, Mapping[str, str]] = {
    "local": dict.fromkeys(("host_root", "num_nodes", "num_gpus", "fully_async", "host_args"), _OF_A_HOST),
    "slime": _EMBEDDED,
    "vime": _EMBEDDED,
}
"""For each host the fields that it does not read, and what to do instead."""


def refuse_ignored(config: Config, host: str) -> None:
    """Raises ConfigError where a setting that ``host`` (local, slime or vime) does not read is not the default.

    ``refuse_ignored(Config(fully_async=True), "local")``: "FULLY_ASYNC=True does nothing with HOST=local ...".
    """
    default = Config()
    for name, remedy in IGNORED[host].items():
        if (value := getattr(config, name)) != getattr(default, name):
            raise ConfigError(f"{name.upper()}={value} does nothing with HOST={host}: {remedy}; leave it out")
