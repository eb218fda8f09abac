"""Checks before anything is started: one line with its remedy for each problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ..checkpoints.folders import has_adapters
from ..config import Config, ConfigError
from ..data.document_store import DocumentStore, store_folder
from ..data.training_file import DataSource, row_slice, without_slice
from ..hooks.host import check_evaluations, check_tracker, refuse_ignored
from ..hooks.rewards import check_own_tasks
from ..system.errors import MemAgentError
from ..system.plugins import shell_words
from ..system.server_url import is_loopback
from .arguments import TRAINER_INIT
from .plan import Plan

_REFUSED = {
    "--partial-rollout": "a multi-turn trajectory cannot be continued",
    "--group-rm": "rewards are given by trajectory",
    "--apply-chat-template": "the rendered chat would become the question",
    "--rollout-top-p": "training needs the log-probs of the whole vocabulary",
    "--tensor-model-parallel-size": "set TP",
    "--max-tokens-per-gpu": "set MAX_TOKENS_PER_GPU",
}
"""Flags of HOST_ARGS under which the pack's hooks would not work, or that say what a setting says."""


def find_problems(plan: Plan) -> list[str]:
    """One line for each thing that would stop or spoil the run."""
    config, megatron = plan.config, Path(plan.config.megatron_root)
    folders = {"TORCH_DIST": config.torch_dist, "SAVE_PATH": config.save_path}
    adapted = [f"{name}={path!r}" for name, path in folders.items() if has_adapters(path)]
    return settings_problems(plan) + _true({
        f"MEGATRON_ROOT={str(megatron)!r}: no Megatron-LM with megatron/training is there; set MEGATRON_ROOT to its "
        "checkout": not (megatron / "megatron" / "training").is_dir(),
        f"{', '.join(adapted)}: holds LoRA adapters, which this host would leave out, and train the base; convert it "
        "with convert-to-hf.sh, which merges them, and set HF_CKPT to that": adapted,
    }) + _raised(lambda: _check_data(config), lambda: check_tracker(config))


def settings_problems(plan: Plan) -> list[str]:
    """The problems that depend on settings alone."""
    config = plan.config
    steps = config.num_rollout * (config.trajectories_per_rollout // config.step_trajectories)
    given = {word.partition("=")[0] for word in shell_words("HOST_ARGS", config.host_args)}
    slices = [data for data in (config.train_data, *config.eval_files) if counts_from_end(data)]
    has = {"LOSS=sft": config.supervised, "DYNAMIC_FILTER": config.dynamic_filter != "none",
           "OVER_SAMPLING_BATCH_SIZE": config.over_sampling_batch_size, "EVAL_INTERVAL": config.eval_interval}
    unknown = [setting for setting, is_set in has.items() if is_set]
    refused = dict(_REFUSED)
    if config.fully_async and config.compares_with_reference:
        refused[TRAINER_INIT] = "the pack's own keeps a continued run on its policy; or set KL_COEF=0"
    return _true({f"HOST_ARGS: {flag} cannot be used: {why}": flag in given for flag, why in refused.items()} | {
        f"EVAL_INTERVAL={config.eval_interval}: LOSS=sft runs without engines here; set EVAL_INTERVAL=0, and evaluate "
        "the converted model with run-eval.sh": config.supervised and config.eval_interval,
        f"FULLY_ASYNC=1: the hosts' asynchronous rollout does not know {', '.join(unknown)}; set that back to its "
        "default, or FULLY_ASYNC=0": config.fully_async and unknown,
        f"{slices}: vime takes no rows counted from the end; give their numbers from the start":
            config.host == "vime" and slices,
        f"RAY_ADDRESS={config.ray_address!r}: give its job server's address, http://HEAD:8265":
            config.ray_address and not config.ray_address.startswith("http"),
        f"NUM_NODES={config.num_nodes}: set MASTER_ADDR to this machine's address for the others":
            config.num_nodes > 1 and is_loopback(config.master_addr) and not config.ray_address,
        # Megatron asserts it, minutes after the start.
        f"LR_WARMUP_STEPS={config.lr_warmup_steps}: the run has {steps} optimizer steps in NUM_ROLLOUT="
        f"{config.num_rollout} rollouts, and Megatron wants more than it warms up; lower it, or raise NUM_ROLLOUT":
            steps <= config.lr_warmup_steps,
    }) + _raised(lambda: refuse_ignored(config, config.host), lambda: check_evaluations(config))


def _true(conditions: Mapping[str, object]) -> list[str]:
    """The messages whose condition holds."""
    return [message for message, holds in conditions.items() if holds]


def _raised(*checks: Callable[[], None]) -> list[str]:
    """The messages of the errors that checks raise."""
    found = []
    for check in checks:
        try:
            check()
        except MemAgentError as error:
            found.append(str(error))
    return found


def counts_from_end(data: str) -> bool:
    """Whether a slice counts rows from the end: ``train.jsonl@[-100:]``."""
    rows = row_slice(data)
    return min(rows.start or 0, rows.stop or 0) < 0


def _check_data(config: Config) -> None:
    """Rows, and the first document by id of each file: a forgotten ``.docs`` folder would fail every trajectory."""
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    source = DataSource(without_slice(config.train_data), config.seed)
    check_own_tasks(source, config)
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
