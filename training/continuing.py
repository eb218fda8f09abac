"""How a run goes on where it stopped: what a checkpoint says beside the weights, and what it refuses to go on from."""

from __future__ import annotations

import logging
import os
from typing import Any

from ..checkpoints.folders import newest_of_run, number_of, numbered, prune
from ..config import Config, ConfigError
from .journal import Journal, fingerprint
from .ranks import is_rank_zero

logger = logging.getLogger("mem_agent")


def resume(config: Config, trainer: Any) -> tuple[int, int]:
    """Load the newest whole checkpoint, if any: (first rollout to do, next group of the data order)."""
    from ..checkpoints import checkpoint

    newest = newest_of_run(config.save_path)
    if newest is None:
        return 0, 0
    state = checkpoint.load(config.save_path, trainer)
    folder = newest.with_name(f"iter_{state['rollout']:07d}")  # an older one, where the newest is damaged
    if state["start"] != start_of(config):
        raise ConfigError(
            f"{config.save_path} holds a run that started from {state['start']}, not from {start_of(config)}; "
            "set another SAVE_PATH, or HF_CKPT and TORCH_DIST as they were"
        )
    if state["loss"] != config.loss:
        raise ConfigError(
            f"{config.save_path} holds a run of LOSS={state['loss']}, not of LOSS={config.loss}; set "
            "another SAVE_PATH, and to go on from its weights HF_CKPT to a folder that convert-to-hf.sh has written"
        )
    if state["fingerprint"] != fingerprint(config):
        logger.warning("settings have changed since %s was written; its run continues under the new ones", folder)
    logger.info("continuing after rollout %d from %s", state["rollout"] + 1, folder)
    if folder != newest and is_rank_zero():
        _say_what_is_done_again(config, state["rollout"] + 1, number_of(newest))
    return state["rollout"] + 1, state["next_group"]


def _say_what_is_done_again(config: Config, first: int, last: int) -> None:
    """Of rollouts ``first`` to ``last``, whose checkpoint is damaged."""
    journal = Journal(config.save_path, config)
    lost = next((number for number in range(first, last + 1) if journal.read(number) is None), None)
    if lost is None:
        how = "the journal has all of them, and the run comes to the same weights"
    else:
        how = f"the journal lacks rollout {lost + 1}: it and what follows is sampled again, and the weights may differ"
    logger.warning("rollouts %d to %d are trained again; %s", first + 1, last + 1, how)


def start_of(config: Config) -> str:
    """Where the policy and the reference model come from: a run keeps both for life."""
    return os.path.realpath(config.torch_dist or config.hf_ckpt)


def save(config: Config, trainer: Any, number: int, next_group: int) -> None:
    from ..checkpoints import checkpoint

    state: dict[str, Any] = {"rollout": number, "next_group": next_group}
    state |= {"fingerprint": fingerprint(config), "start": start_of(config), "loss": config.loss}
    path = checkpoint.save(config.save_path, number, trainer, state)
    if is_rank_zero():
        prune(config.save_path, config.keep_checkpoints)
    logger.info("checkpoint %s", path)


def absorbed(config: Config, number: int) -> int:
    """The last rollout that going back does not need, after the checkpoint of rollout ``number``.

    Whoever goes back to the oldest kept checkpoint replays what came after it; to the last but one where all are kept.
    """
    until = [n for n in map(number_of, numbered(config.save_path)) if n <= number]
    return until[0] if config.keep_checkpoints else until[-2:][0]
