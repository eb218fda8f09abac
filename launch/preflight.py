"""Checks before anything is started: one line with its remedy for each problem."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..checkpoints.hf_folder import HfTensors, trainable_config
from ..checkpoints.hf_model import load_vocabulary
from ..config import Config, ConfigError
from ..data.document_store import DocumentStore, store_folder
from ..data.training_file import DataSource, row_slice, without_slice
from ..hooks.host import check_evaluations, check_save_path, check_tracker, refuse_ignored
from ..hooks.row_checks import row_problems
from ..system.errors import MemAgentError
from ..system.plugins import shell_words
from ..system.server_url import is_loopback

logger = logging.getLogger("mem_agent")

_REFUSED = {"--partial-rollout", "--group-rm", "--apply-chat-template", "--rollout-top-p", "--n-samples-per-prompt"}
"""Flags of HOST_ARGS under which the pack's hooks would not work: a multi-turn trajectory cannot be continued, rewards
are given by trajectory, a rendered chat would become the question, training needs the whole vocabulary's log-probs; a
group's size is N_SAMPLES_PER_PROMPT, which is checked."""


def find_problems(config: Config, *, of_machine: bool = True) -> list[str]:
    """One line for each thing that would stop or spoil the run; ``of_machine`` False: of settings alone."""
    checks = [partial(refuse_ignored, config, config.host), partial(check_evaluations, config)]
    found = list(_settings_problems(config))
    if of_machine:
        found += _machine_problems(config)
        checks += [partial(check, config) for check in (_check_model, _check_data, check_save_path, check_tracker)]
        every, some = _row_problems(config)
        found += every
        for line in some:
            logger.warning(line)
    for check in checks:
        try:
            check()
        except MemAgentError as error:
            found.append(str(error))
    return found


def _settings_problems(config: Config) -> Iterator[str]:
    given = {word.partition("=")[0] for word in shell_words("HOST_ARGS", config.host_args)}
    if refused := sorted(given & _REFUSED):
        yield f"HOST_ARGS: the pack's hooks do not work with {' '.join(refused)}; leave it out"
    if config.supervised and config.eval_interval:
        yield (f"EVAL_INTERVAL={config.eval_interval}: LOSS=sft runs without engines here; set EVAL_INTERVAL=0, and "
               "evaluate the converted model with run-eval.sh")
    has = {"LOSS=sft": config.supervised, "DYNAMIC_FILTER": config.dynamic_filter != "none",
           "OVER_SAMPLING_BATCH_SIZE": config.over_sampling_batch_size, "EVAL_INTERVAL": config.eval_interval}
    unknown = [setting for setting, is_set in has.items() if is_set]
    if config.fully_async and unknown:
        yield (f"FULLY_ASYNC=1: the hosts' asynchronous rollout does not know {', '.join(unknown)}; set that back to "
               "its default, or FULLY_ASYNC=0")
    steps = config.num_rollout * (config.trajectories_per_rollout // config.step_trajectories)
    if steps <= config.lr_warmup_steps:  # Megatron asserts it, minutes after the start
        yield (f"LR_WARMUP_STEPS={config.lr_warmup_steps}: the run has {steps} optimizer steps in NUM_ROLLOUT="
               f"{config.num_rollout} rollouts, Megatron wants more than it warms up; lower it, or raise NUM_ROLLOUT")
    if config.num_nodes > 1 and is_loopback(config.master_addr) and not config.ray_address:
        yield f"NUM_NODES={config.num_nodes}: set MASTER_ADDR to this machine's address for the others"


def _machine_problems(config: Config) -> Iterator[str]:
    if not Path(config.megatron_root, "megatron", "training").is_dir():
        yield (f"MEGATRON_ROOT={config.megatron_root!r}: no Megatron-LM with megatron/training is there; set "
               "MEGATRON_ROOT to its checkout")
    for name, folder in (("TORCH_DIST", config.torch_dist), ("SAVE_PATH", config.save_path)):
        if any(b".lora." in file.read_bytes() for file in Path(folder).glob("*/.metadata")):
            yield (f"{name}={folder!r}: holds LoRA adapters, which this host would leave out, and train the base; "
                   "convert it with convert-to-hf.sh, which merges them, and set HF_CKPT to that")


def _row_problems(config: Config) -> tuple[list[str], list[str]]:
    try:
        source, folder = DataSource(without_slice(config.train_data), config.seed), Path(config.hf_ckpt)
        return row_problems(config, source, load_vocabulary(folder, config.trust_remote_code))
    except MemAgentError:  # which others name
        return [], []


def _check_model(config: Config) -> None:
    folder = Path(config.hf_ckpt)
    if folder.is_dir():
        trainable_config(folder)
    if any(folder.glob("*.safetensors")):
        HfTensors(folder)


def _check_data(config: Config) -> None:
    """Rows, and the first document by id of each file: a forgotten ``.docs`` folder would fail every trajectory."""
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    source = DataSource(without_slice(config.train_data), config.seed)
    rows = len(range(len(source))[row_slice(config.train_data)])
    if rows < config.rollout_batch_size:
        raise ConfigError(f"{config.train_data}: {rows} rows, a rollout takes ROLLOUT_BATCH_SIZE="
                          f"{config.rollout_batch_size}")
    files = [file for file in map(without_slice, config.eval_files) if file.is_file()]
    first = {config.train_data: source.raw(0)} | {str(file): DataSource(file, config.seed).raw(0) for file in files}
    stores = [DocumentStore(store_folder(file)) for file in first]
    for path, row in first.items():
        named = row["metadata"].get("context_id") or row["metadata"].get("history_id")
        if named and not any(named in store for store in stores):
            raise ConfigError(f"{path}: its first document, {named}, is in none of its document stores; copy "
                              "the .docs folder along with the file")
