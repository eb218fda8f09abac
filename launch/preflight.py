"""Checks before anything is started: one line with its remedy for each problem."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from ..checkpoints.folders import has_adapters
from ..config import Config, ConfigError
from ..data.document_store import DocumentStore, store_folder
from ..data.training_file import DataSource, row_slice, without_slice
from ..hooks.plugins import check_evaluations, check_own_tasks, check_tracker, refuse_ignored
from ..system.errors import MemAgentError
from ..system.plugins import shell_words
from ..system.ports import is_free
from ..system.server_url import is_loopback
from .arguments import TRAINER_INIT
from .plan import Plan
from .ray_job import machines

_CHECKPOINT_BYTES, _REFERENCE_BYTES = 14, 2
"""On disk per parameter: bf16 weights, and in a checkpoint fp32 master weights and two Adam moments."""
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
"""Flags of HOST_ARGS under which the pack's hooks would not work, or that say what a setting says."""


def find_problems(plan: Plan, *, converts: bool = False) -> list[str]:
    """One line for each thing that would stop or spoil the run; ``converts``: its newest checkpoint is converted."""
    config, megatron = plan.config, Path(plan.config.megatron_root)
    existing = len(list(Path(config.save_path).glob("iter_*")))
    checkpoints = max(1, -(-config.num_rollout // config.save_interval) - existing)
    ports = () if config.ray_address else (*plan.ports, plan.ports[1] + 1)
    busy = [port for port in ports if not is_free(port)]
    # What the job and the conversions import is looked for, as importing takes long.
    needed = ("ray", "torch", "mbridge") if converts or not plan.has_reference else ("ray",)
    missing = [name for name in needed if find_spec(name) is None]
    folders = {"TORCH_DIST": config.torch_dist, "SAVE_PATH": config.save_path}
    adapted = [f"{name}={path!r}" for name, path in folders.items() if has_adapters(path)]
    return settings_problems(plan) + _true({
        f"MEGATRON_ROOT={str(megatron)!r}: no Megatron-LM with megatron/training is there; set MEGATRON_ROOT to its "
        "checkout": not (megatron / "megatron" / "training").is_dir(),
        f"ports {busy} are taken, which Ray would need; if a Ray cluster runs here, set "
        "RAY_ADDRESS=http://127.0.0.1:8265 to use it, else stop what listens there": busy,
        f"PYTHON={sys.executable!r} has no {' and no '.join(missing)}; set PYTHON to that of the host's environment, "
        "or install it there with pip install --no-deps, which leaves the host's packages as they are": missing,
        f"{', '.join(adapted)}: holds LoRA adapters, which this host would leave out, and train the base; convert it "
        "with convert-to-hf.sh, which merges them, and set HF_CKPT to that": adapted,
    }) + _raised(
        lambda: _check_data(config),
        lambda: check_tracker(config),
        lambda: _check_room("SAVE_PATH", config.save_path, checkpoints * _CHECKPOINT_BYTES * plan.parameters,
                            f"{checkpoints} checkpoints, of which the host deletes none (SAVE_INTERVAL)"),
        lambda: _check_reference(plan),
        lambda: _check_cluster(config),
    )


def settings_problems(plan: Plan) -> list[str]:
    """The problems that depend on settings alone."""
    config, step, ranks = plan.config, plan.config.step_trajectories, plan.layout.data_parallel
    given = {word.partition("=")[0] for word in shell_words("HOST_ARGS", config.host_args)}
    steps = config.num_rollout * (config.trajectories_per_rollout // step)
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
        f"GLOBAL_BATCH_SIZE={step} trajectories per step are fewer than the {ranks} data-parallel ranks; raise it, "
        "or TP or CP": step < ranks,
        # Megatron's scheduler asserts that a run is longer than its warm-up.
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


def _check_reference(plan: Plan) -> None:
    """A conversion has a folder of its own, and room; leftovers of a killed one are ignored."""
    folder = Path(plan.config.torch_dist)
    if plan.has_reference:
        return
    if folder.exists() and any(child.name != "release" and child.name[0] != "." for child in folder.iterdir()):
        raise ConfigError(f"TORCH_DIST={str(folder)!r}: holds files, but no checkpoint; name another folder")
    _check_room("TORCH_DIST", str(folder), _REFERENCE_BYTES * plan.parameters, "the reference model")


def _check_room(variable: str, path: str, needed: float, what: str) -> None:
    folder = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{variable}={path!r}: {folder} is not a writable folder; choose another {variable}")
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(f"{variable}={path!r}: {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB are needed for {what}"
                          f"; make room or choose another {variable}")


def _check_cluster(config: Config) -> None:
    found = machines(config.ray_address) if config.ray_address.startswith("http") else []
    if found and sum(gpus >= config.num_gpus for gpus in found) < config.num_nodes:
        raise ConfigError(f"RAY_ADDRESS={config.ray_address}: NUM_NODES={config.num_nodes} machines with "
                          f"{config.num_gpus} GPUs are needed, the cluster has {', '.join(map(str, found))}; "
                          "lower NUM_NODES or NUM_GPUS, or add machines")
