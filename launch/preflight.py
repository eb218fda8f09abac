"""Checks before anything is started: one line with its remedy for each problem."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..checkpoints.folders import has_adapters
from ..config import Config, ConfigError
from ..data.document_store import DocumentStore, MissingDocument, row_slice, store_folder, without_slice
from ..data.row_files import DataError, open_rows
from ..data.shards import training_files
from ..data.training_file import DataSource
from ..hooks.plugins import check_evaluations, check_own_tasks, check_tracker
from ..system.files import scratch_folder
from ..system.ports import is_free
from ..system.server_url import is_loopback
from .plan import PACK, Plan, noting
from .ray_job import machines

_CHECKPOINT_BYTES, _REFERENCE_BYTES = 14, 2
"""On disk per parameter: bf16 weights, and in a checkpoint fp32 master weights and two Adam moments."""

Check = Callable[[Plan], None]


def find_problems(plan: Plan, *, converts: bool = False) -> list[str]:
    """One line for each thing that would stop or spoil the run; ``converts``: its newest checkpoint is converted."""
    return _told_by(plan, [
        _check_training_file, _check_slices, *_OF_SETTINGS, lambda plan: check_tracker(plan.config), _check_documents,
        _check_save_path, _check_reference, lambda plan: check_no_adapters(plan.config), _check_cluster, _check_ports,
        lambda plan: check_imports(plan, converts=converts),
    ])


def settings_problems(plan: Plan) -> list[str]:
    """The checks that depend on settings alone."""
    return _told_by(plan, _OF_SETTINGS)


def _told_by(plan: Plan, checks: Sequence[Check]) -> list[str]:
    problems = list(plan.problems)
    for check in checks:
        with noting(problems):
            check(plan)
    return problems


def _check_training_file(plan: Plan) -> None:
    config = plan.config
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    source = DataSource(without_slice(config.train_data), config.seed)
    check_own_tasks(source, config)
    rows = len(range(len(source))[row_slice(config.train_data)])
    if rows < config.rollout_batch_size:
        raise ConfigError(f"{config.train_data}: {rows} rows, a rollout takes ROLLOUT_BATCH_SIZE="
                          f"{config.rollout_batch_size}")


def _check_slices(plan: Plan) -> None:
    for data in (plan.config.train_data, *plan.config.eval_files):
        rows = row_slice(data)
        if plan.config.host == "vime" and min(rows.start or 0, rows.stop or 0) < 0:
            raise ConfigError(f"{data}: vime takes no rows counted from the end; give their numbers from the start")


def _check_documents(plan: Plan) -> None:
    """A forgotten ``.docs`` folder would fail every trajectory: the first document by id of each file is looked up."""
    config = plan.config
    training = training_files(without_slice(config.train_data))[:1] if config.train_data else ()
    files = [path for path in (*training, *map(without_slice, config.eval_files)) if path.is_file()]
    stores = [DocumentStore(store_folder(path)) for path in files]
    for path in files:
        if (identifier := _first_document_id(path)) and not any(_has(store, identifier) for store in stores):
            raise ConfigError(f"{path}: its first document, {identifier}, is in none of its document stores")


def _has(store: DocumentStore, identifier: str) -> bool:
    try:
        store.get(identifier)
    except MissingDocument:
        return False
    return True


def _first_document_id(path: Path) -> str | None:
    """The document's id in the first row; a file has documents by id in all of its rows or in none."""
    try:
        metadata = open_rows(path).row(0)["metadata"]
        return metadata.get("context_id") or metadata.get("history_id")
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, DataError):
        return None  # its own check says more


def _check_machines(plan: Plan) -> None:
    config = plan.config
    if config.ray_address and not config.ray_address.startswith(("http://", "https://")):
        raise ConfigError(f"RAY_ADDRESS={config.ray_address!r}: give its job server's address, http://HEAD:8265")
    if not config.ray_address and config.num_nodes > 1 and is_loopback(config.master_addr):
        raise ConfigError(f"NUM_NODES={config.num_nodes}: set MASTER_ADDR to this machine's address for the others")


def _check_batches(plan: Plan) -> None:
    step, ranks = plan.config.step_trajectories, plan.layout.data_parallel
    if step < ranks:
        raise ConfigError(f"GLOBAL_BATCH_SIZE={step} trajectories per step are fewer than the {ranks} data-parallel "
                          "ranks; raise it, or TP or CP")


def _check_warm_up(plan: Plan) -> None:
    """Megatron's scheduler asserts that a run is longer than its warm-up."""
    config = plan.config
    steps = config.num_rollout * (config.trajectories_per_rollout // config.step_trajectories)
    if 0 < steps <= config.lr_warmup_steps:
        raise ConfigError(f"LR_WARMUP_STEPS={config.lr_warmup_steps}: the run has {steps} optimizer steps in "
                          f"NUM_ROLLOUT={config.num_rollout} rollouts, and Megatron wants more than it warms up; "
                          "lower it, or raise NUM_ROLLOUT")


_OF_SETTINGS: Sequence[Check] = (
    lambda plan: check_evaluations(plan.config), _check_machines, _check_batches, _check_warm_up)


def _check_save_path(plan: Plan) -> None:
    """There must be room for all checkpoints of the run: hosts delete none."""
    config = plan.config
    existing = len(list(Path(config.save_path).glob("iter_*")))
    count = max(1, -(-config.num_rollout // config.save_interval) - existing)
    _check_room("SAVE_PATH", config.save_path, count * _CHECKPOINT_BYTES * plan.size.parameters,
                f"{count} checkpoints, of which the host deletes none (SAVE_INTERVAL)")


def _check_reference(plan: Plan) -> None:
    """Leftovers of a killed conversion are ignored."""
    folder = Path(plan.config.torch_dist)
    if plan.has_reference:
        return
    if folder.exists() and any(child.name != "release" and child.name[0] != "." for child in folder.iterdir()):
        raise ConfigError(f"TORCH_DIST={str(folder)!r}: holds files, but no checkpoint; name another folder")
    _check_room("TORCH_DIST", str(folder), _REFERENCE_BYTES * plan.size.parameters, "the reference model")


def _check_room(variable: str, path: str, needed: float, what: str) -> None:
    folder = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{variable}={path!r}: {folder} is not a writable folder; choose another {variable}")
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(f"{variable}={path!r}: {free / 1e9:.0f} GB free, {needed / 1e9:.0f} GB are needed for {what}"
                          f"; make room or choose another {variable}")


def check_no_adapters(config: Config) -> None:
    """The hosts' loaders leave out what they do not know, and would train the base."""
    for name, path in (("TORCH_DIST", config.torch_dist), ("SAVE_PATH", config.save_path)):
        if path and has_adapters(path):
            raise ConfigError(f"{name}={path!r}: holds LoRA adapters, which this host would leave out; convert it "
                              "with convert-to-hf.sh, which merges them, and set HF_CKPT to that")


def _check_cluster(plan: Plan) -> None:
    config = plan.config
    if not config.ray_address.startswith("http"):
        return
    found = machines(config.ray_address)
    if sum(gpus >= config.num_gpus for gpus in found) < config.num_nodes:
        raise ConfigError(f"RAY_ADDRESS={config.ray_address}: NUM_NODES={config.num_nodes} machines with "
                          f"{config.num_gpus} GPUs are needed, those of the cluster have "
                          f"{', '.join(map(str, found)) or 'none'}; lower NUM_NODES or NUM_GPUS, or add machines")


def _check_ports(plan: Plan) -> None:
    for port in (*plan.ports, plan.ports[1] + 1):
        if not plan.config.ray_address and not is_free(port):
            raise ConfigError(f"port {port} is taken, which Ray would need; if a Ray cluster runs here, set "
                              "RAY_ADDRESS=http://127.0.0.1:8265 to use it, else stop what listens there")


def check_imports(plan: Plan, *, converts: bool = False) -> None:
    """Workers must import this pack's hooks, and this machine Ray and what converts the reference and the result."""
    modules = ["ray", "mem_agent.rollout", "mem_agent.custom_convert"]
    modules += [] if plan.has_reference else ["mem_agent.checkpoints.hf_to_torch_dist"]
    modules += ["mem_agent.checkpoints.convert"] if converts else []
    with scratch_folder("mem_agent-import-") as folder:  # for the first entry of the workers' path, not written yet
        (folder / "mem_agent").symlink_to(PACK, target_is_directory=True)
        path = os.pathsep.join([str(folder), plan.python_path])
        done = subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], cwd=plan.checkout.root,
                              env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"PYTHON={sys.executable!r} cannot import {' and '.join(modules)}: {reason}; set PYTHON to "
                          "that of the host's environment, or install what is missing there with pip install --no-deps"
                          ", which leaves the host's packages as they are")
