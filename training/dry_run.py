"""DRY_RUN=1 for the embedded host: what a run would start, with which memory, and every problem at once.

::

    # settings that are not their defaults
    NUM_ROLLOUT=40  ROLLOUT_BATCH_SIZE=8  ...
    # what starts
    engines: 1 (weights up to 0.5 GB, KV cache 1.1 GB each) behind a router
    trainer processes: 2 (up to 3.2 GB each, beside activations); 21.9 GB of memory are free
    40 rollouts of 64 trajectories, 400 training rows; a rollout took 5.2 s so far, so some 3 minutes for
    the 34 that are left
    error: DATA_ROOT: data/eval_50.json: no such file ...

Nothing is written, downloaded or started.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ..checkpoints import hf_model
from ..checkpoints.folders import newest_of_run, number_of
from ..config import Config
from ..data.training_file import DataSource
from ..evaluation.questions import data_path
from ..hooks.host import check_evaluations, check_tracker, refuse_ignored
from ..hooks.rewards import check_plugins
from ..hooks.row_checks import row_problems
from ..serving.servers import KV_BYTES
from ..system.errors import MemAgentError
from ..system.plugins import shell_words
from .log import read_metrics
from .ranks import BYTES_PER_PARAMETER, with_train_procs

GB = 1e9


def dry_run(config: Config, *, evaluate: bool) -> list[str]:
    """Print what would start; returns the problems, one line each."""
    problems: list[str] = []

    def attempt(check: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except (MemAgentError, OSError) as error:
            problems.append(str(error))

    print("# settings that are not their defaults", "  ".join(config.changed()), "# what starts", sep="\n")
    attempt(refuse_ignored, config, "local")
    for check in (check_tracker, check_evaluations, check_plugins, _check_save_path):
        attempt(check, config)
    vocabulary = None
    if config.hf_ckpt and not Path(config.hf_ckpt).exists():
        print(f"HF_CKPT={config.hf_ckpt} is no folder here: it would be fetched from the hub")
    elif (folder := attempt(hf_model.local_folder, config.hf_ckpt)) is not None:
        vocabulary = attempt(hf_model.load_vocabulary, folder, config.trust_remote_code)
        _print_processes(with_train_procs(config, folder), hf_model.parameter_count(hf_model.model_config(folder)))
    rows = "no"
    if made_first := bool(os.environ.get("POCKET_DATA")) and not Path(config.train_data).exists():
        print(f"{os.environ['POCKET_DATA']}: the pocket data are made first")
    elif not config.train_data:
        problems.append("TRAIN_DATA is not set; make a training file with mem-agent prepare")
    elif (source := attempt(DataSource, config.train_data, config.seed)) is not None:
        rows = str(len(source))
        problems += attempt(row_problems, config, source, vocabulary) or []
    for length in config.length.split() if evaluate and config.data_root and not made_first else ():
        attempt(data_path, Path(config.data_root), length)
    print(f"{config.num_rollout} rollouts of {config.trajectories_per_rollout} trajectories, {rows} training rows"
          f"{_time_left(config)}")
    return problems


def _check_save_path(config: Config) -> None:
    folder = Path(config.save_path).absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise MemAgentError(f"SAVE_PATH={config.save_path!r}: {there} cannot be written; set another")


def _print_processes(config: Config, parameters: int) -> None:
    words = shell_words("ENGINE_ARGS", config.engine_args)
    own = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "--kv-cache-memory-bytes"]
    weights, cache = 4 * parameters / GB, int((own or [KV_BYTES])[-1]) / GB
    trainer = BYTES_PER_PARAMETER * parameters / GB
    print(f"engines: {config.num_engines} (weights up to {weights:.1f} GB, KV cache {cache:.1f} GB each) behind a "
          "router")
    print(f"trainer processes: {config.train_procs} (up to {trainer:.1f} GB each, beside activations); "
          f"{psutil.virtual_memory().available / GB:.1f} GB of memory are free")


def _time_left(config: Config) -> str:
    """By the rollouts that the run in SAVE_PATH has done, if there is one."""
    newest = newest_of_run(config.save_path) if config.save_path else None
    took = [line["seconds"] for line in read_metrics(config.save_path)] if newest is not None else []
    if newest is None or not took:
        return ""
    mean, left = sum(took) / len(took), config.num_rollout - number_of(newest) - 1
    return f"; a rollout took {mean:.1f} s so far, so some {left * mean / 60:.0f} minutes for the {left} that are left"
