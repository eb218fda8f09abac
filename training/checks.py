"""What can be known to go wrong before anything of a run in the embedded host is started."""

from __future__ import annotations

import logging

from ..checkpoints.hf_model import load_vocabulary, local_folder, with_engine_length, with_serving_length
from ..config import Config, ConfigError
from ..data.training_file import DataSource
from ..hooks.plugins import check_own_tasks, check_plugins, refuse_ignored
from ..system.tracker_library import check_tracker
from .evaluate import check_evaluations, rows_of
from .process_count import with_train_procs

logger = logging.getLogger("mem_agent")


def refuse_split_adapters(config: Config) -> None:
    if config.lora_rank and config.trainer_tp > 1:
        raise ConfigError(f"LORA_RANK={config.lora_rank}: adapters are trained on whole matrices, not with "
                          f"TP={config.tp}; set TP=1, where TRAIN_PROCS gives copies that share the rows")


def checked(config: Config) -> Config:
    """The config with a local model folder, or the reason why it cannot be trained, before anything is started."""
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    refuse_ignored(config, "local")
    check_tracker(config.tracker)
    check_evaluations(config)
    refuse_split_adapters(config)
    if config.supervised and config.n_samples_per_prompt > 1:
        logger.info("LOSS=sft: a row has one reply, N_SAMPLES_PER_PROMPT=%d is not read", config.n_samples_per_prompt)
    check_plugins(config)
    check_own_tasks(DataSource(config.train_data, config.seed), config)
    for file in config.eval_files:
        check_own_tasks(rows_of(config, file)[0], config)
    folder = local_folder(config.hf_ckpt)
    config = with_train_procs(config.replace(hf_ckpt=str(folder)), folder)
    copies = config.train_procs // config.trainer_tp
    if config.step_trajectories < copies:
        raise ConfigError(f"GLOBAL_BATCH_SIZE={config.step_trajectories} is below the {copies} data-parallel copies")
    vocabulary = load_vocabulary(folder, config.trust_remote_code)
    sized = with_engine_length(config, folder, vocabulary)
    if config.eval_mode != "direct":
        return sized
    served = with_serving_length(config, folder, vocabulary)  # it shows more than a turn of training
    return max(sized, served, key=lambda one: one.engine_max_len)
