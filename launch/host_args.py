"""HOST_ARGS: further flags for the host's ``train.py``, behind the launcher's own; the last one wins.

The launcher reads the few of them that say how GPUs are divided, so that what it derives fits them::

    HOST_ARGS="--context-parallel-size 2 --lr 5e-6"    Division(cp=2), and --lr 5e-6 reaches the host as it is
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ..config import Config, ConfigError
from ..system.plugins import shell_words

ENGINE_MEMORY = 0.7
"""Share of a GPU's memory that an engine takes, unless HOST_ARGS says otherwise."""
TRAINER_INIT = "--custom-megatron-init-path"
_REFUSED = {
    "--partial-rollout": "a multi-turn trajectory cannot be continued",
    "--group-rm": "rewards are given by trajectory",
    "--apply-chat-template": "the rendered chat would become the question",
    "--multimodal-keys": "agents show text alone",
    "--log-passrate": "it counts rows, not trajectories",
    "--rollout-top-p": "training needs the log-probs of the whole vocabulary",
    "--wandb-key": "it would be shown on Ray's pages; set WANDB_API_KEY",
    "--tensor-model-parallel-size": "set TP",
    "--use-checkpoint-opt-param-scheduler": "a continued run has the schedule of its settings",
    "--max-tokens-per-gpu": "set MAX_TOKENS_PER_GPU",
}


@dataclass(frozen=True)
class Division:
    """What HOST_ARGS says of how GPUs are divided; 0: nothing, it is derived."""

    pp: int = 0
    cp: int = 0
    engine_gpus: int = 0
    rollout_gpus: int = 0
    engine_memory: float = ENGINE_MEMORY


def split(config: Config) -> list[str]:
    """The flags and their values, one by one. Raises ConfigError."""
    return shell_words("HOST_ARGS", config.host_args)


def divide(config: Config) -> tuple[Division, list[str]]:
    """The division, and the flags that do not concern it.

    Raises:
        ConfigError: a flag has no value, or one that is no number.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--pipeline-model-parallel-size", dest="pp", type=int)
    parser.add_argument("--context-parallel-size", dest="cp", type=int)
    parser.add_argument("--rollout-num-gpus-per-engine", dest="engine_gpus", type=int)
    parser.add_argument("--rollout-num-gpus", dest="rollout_gpus", type=int)
    parser.add_argument("--sglang-mem-fraction-static", "--vllm-gpu-memory-utilization", dest="engine_memory",
                        type=float)
    parser.set_defaults(**vars(Division()))
    try:
        given, rest = parser.parse_known_args(split(config))
    except argparse.ArgumentError as error:
        raise ConfigError(f"HOST_ARGS={config.host_args!r}: {error}") from None
    return Division(**vars(given)), rest


def given_flags(config: Config) -> set[str]:
    return {item.partition("=")[0] for item in split(config) if item.startswith("--")}


def check(config: Config) -> None:
    """Raise ConfigError for a flag under which the pack's hooks would not work."""
    divide(config)
    given = given_flags(config)
    for flag in sorted(given & _REFUSED.keys()):
        raise ConfigError(f"HOST_ARGS: {flag} cannot be used: {_REFUSED[flag]}")
    if TRAINER_INIT in given and config.fully_async and config.compares_with_reference:
        raise ConfigError(f"HOST_ARGS: {TRAINER_INIT} would replace the pack's own, without which a continued run of "
                          "FULLY_ASYNC=1 samples from the reference first; leave it out, or set KL_COEF=0")
