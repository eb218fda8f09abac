"""DRY_RUN=1 for the embedded host: what a run would start, with which memory, and every problem at once.

::

    # settings that are not their defaults
    NUM_ROLLOUT=40
    ...
    # what starts
    engines: 1 (weights up to 0.5 GB, KV cache 1.1 GB each) behind a router
    trainer processes: 2 (up to 3.2 GB each, beside activations); 21.9 GB of this machine's memory are free
    40 rollouts of 64 trajectories, 400 training rows
    error: DATA_ROOT: data/eval_50.json: no such file ...

Nothing is written, downloaded or started.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from ..checkpoints import hf_model
from ..checkpoints.hf_folder import HfTensors, trainable_config
from ..checkpoints.model_card import hub_id
from ..config import Config
from ..data.training_file import DataSource
from ..evaluation.questions import data_path
from ..hooks.host import check_evaluations, check_save_path, check_tracker, refuse_ignored
from ..hooks.rewards import check_plugins
from ..hooks.row_checks import row_problems
from ..serving.servers import GPU_SHARE, KV_BYTES
from ..system.cli import sees_gpu
from ..system.errors import MemAgentError
from ..system.plugins import shell_words
from .evaluate import rows_of
from .ranks import BYTES_PER_PARAMETER, with_train_procs

GB = 1e9


def checks(config: Config) -> Iterator[Callable[[], object]]:
    """Of a run's settings and evaluation files; each raises MemAgentError where something is wrong."""
    yield partial(refuse_ignored, config, "local")
    yield from (partial(check, config) for check in (check_tracker, check_evaluations, check_plugins, check_save_path))
    yield from (partial(rows_of, config, file) for file in config.eval_files)


def check_model(folder: Path) -> None:
    """Raises CheckpointError where it would not train exactly, or its weights cannot be read."""
    trainable_config(folder)
    HfTensors(folder)


def dry_run(config: Config, *, evaluate: bool) -> list[str]:
    """Print what would start; returns the problems, one line each."""
    problems: list[str] = []

    def attempt(check: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return check(*arguments)
        except (MemAgentError, OSError) as error:
            problems.append(str(error))

    print("# settings that are not their defaults", *hf_model.shell_words(config.changed()), "# what starts", sep="\n")
    for check in checks(config):
        attempt(check)
    if config.torch_dist and not Path(config.torch_dist).is_dir():
        problems.append(f"TORCH_DIST={config.torch_dist!r}: no such folder")
    vocabulary = None
    if config.hf_ckpt and not Path(config.hf_ckpt).exists():
        print(f"HF_CKPT={config.hf_ckpt} is no folder here: it would be fetched from the hub")
        if hub_id(config.hf_ckpt) is None:
            problems.append(f"HF_CKPT={config.hf_ckpt!r}: no such folder, and no model of the hub has such a name")
    elif (folder := attempt(hf_model.local_folder, config.hf_ckpt)) is not None:
        attempt(check_model, folder)
        if (vocabulary := attempt(hf_model.load_vocabulary, folder, config.trust_remote_code)) is not None:
            attempt(hf_model.with_engine_length, config, folder, vocabulary)
        if unlike := attempt(hf_model.unlike_settings, folder, config):
            print(f"warning: the agent reads otherwise than {config.hf_ckpt} was made to: {unlike}")
        _print_processes(with_train_procs(config, folder), hf_model.parameter_count(hf_model.model_config(folder)),
                         engines=not config.supervised or evaluate or config.eval_interval > 0)
    rows = ""
    if made_first := bool(os.environ.get("POCKET_DATA")) and not Path(config.train_data).exists():
        print(f"{os.environ['POCKET_DATA']}: the pocket data are made first")
    elif not config.train_data:
        problems.append("TRAIN_DATA is not set; make a training file with mem-agent prepare")
    elif (source := attempt(DataSource, config.train_data, config.seed)) is not None:
        rows = f", {len(source)} training rows"
        every, some = attempt(row_problems, config, source, vocabulary) or ([], [])
        problems += every
        print(*(f"warning: {line}" for line in some), sep="\n", end="\n" if some else "")
    for length in config.length.split() if evaluate and config.data_root and not made_first else ():
        attempt(data_path, Path(config.data_root), length)
    print(f"{config.num_rollout} rollouts of {config.trajectories_per_rollout} trajectories{rows}")
    return problems


def _print_processes(config: Config, parameters: int, *, engines: bool) -> None:
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--kv-cache-memory-bytes", default=f"{KV_BYTES / GB:.1f} GB")
    cache = options.parse_known_args(shell_words("ENGINE_ARGS", config.engine_args))[0].kv_cache_memory_bytes
    memory = f"weights up to {4 * parameters / GB:.1f} GB, KV cache {cache} each"
    if sees_gpu():
        memory = f"{GPU_SHARE:.0%} of a GPU's memory"
    print(f"engines: {config.num_engines} ({memory}) behind a router" if engines else "engines: none")
    trainer, free = BYTES_PER_PARAMETER * parameters / GB, psutil.virtual_memory().available / GB
    print(f"trainer processes: {config.train_procs} (up to {trainer:.1f} GB each, beside activations); {free:.1f} GB "
          "of this machine's memory are free")
