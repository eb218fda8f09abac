"""Everything that can be known to go wrong before anything is started, each as one line with its remedy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..checkpoints.folders import has_adapters
from ..config import Config, ConfigError
from ..data.document_store import DocumentStore, MissingDocument, row_slice, store_folder, without_slice
from ..data.row_files import DataError, open_rows
from ..data.shards import training_files
from ..data.training_file import DataSource
from ..hooks.plugins import check_evaluations, check_own_tasks, check_tracker
from ..system.errors import MemAgentError
from ..system.ports import is_free
from ..system.server_url import is_loopback
from .layout import Layout
from .model_args import ModelSize
from .plan import PACK, Plan, has_checkpoint

_CHECKPOINT_BYTES, _REFERENCE_BYTES = 14, 2
"""On disk per parameter: bf16 weights, and in a checkpoint fp32 master weights and two Adam moments."""


def find_problems(plan: Plan) -> list[str]:
    """One line for each thing that would stop or spoil the run."""
    config = plan.config
    return _told_by([
        lambda: _check_training_file(config),
        lambda: _check_slices(config),
        *_settings_checks(plan),
        lambda: check_tracker(config),
        lambda: _check_documents(config),
        lambda: _check_save_path(config, plan.size),
        lambda: _check_torch_dist(config, plan.size),
        lambda: check_no_adapters(config),
        lambda: _check_ports(plan),
        _check_ray,
        lambda: _check_hooks_import(plan),
    ])


def settings_problems(plan: Plan) -> list[str]:
    """Those of ``find_problems`` that are in the settings alone, on whatever machine they are read."""
    return _told_by(_settings_checks(plan))


def _settings_checks(plan: Plan) -> list[Callable[[], None]]:
    return [
        lambda: check_evaluations(plan.config),
        lambda: _check_machines(plan.config),
        lambda: _check_batches(plan.config, plan.layout),
        lambda: _check_warm_up(plan.config),
    ]


def _told_by(checks: Sequence[Callable[[], None]]) -> list[str]:
    found = []
    for check in checks:
        try:
            check()
        except MemAgentError as error:
            found.append(str(error))
    return found


def _check_training_file(config: Config) -> None:
    if not config.train_data:
        raise ConfigError("TRAIN_DATA is not set; make a training file with prepare_data.py")
    source = DataSource(without_slice(config.train_data), config.seed)
    check_own_tasks(source, config)
    rows = len(source)
    rows = len(range(rows)[row_slice(config.train_data)])
    if rows < config.rollout_batch_size:
        raise ConfigError(
            f"{config.train_data}: {rows} rows, a rollout takes ROLLOUT_BATCH_SIZE={config.rollout_batch_size}"
        )


def _check_slices(config: Config) -> None:
    for data in (config.train_data, *config.eval_files):
        rows = row_slice(data)
        if config.host == "vime" and min(rows.start or 0, rows.stop or 0) < 0:
            raise ConfigError(f"{data}: vime takes no rows counted from the end; give their numbers from the start")


def _check_documents(config: Config) -> None:
    """A forgotten ``.docs`` folder would fail every trajectory: the first document by id of each file is looked up."""
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


def _check_save_path(config: Config, model: ModelSize) -> None:
    """There must be room for all checkpoints of the run: hosts delete none."""
    existing = len(list(Path(config.save_path).glob("iter_*")))
    count = max(1, -(-config.num_rollout // config.save_interval) - existing)
    _check_room("SAVE_PATH", config.save_path, count * _CHECKPOINT_BYTES * model.parameters,
                f"{count} checkpoints (the host deletes none)", "raise SAVE_INTERVAL or choose another SAVE_PATH")


def _check_torch_dist(config: Config, model: ModelSize) -> None:
    if not has_checkpoint(Path(config.torch_dist)):
        _check_room("TORCH_DIST", config.torch_dist, _REFERENCE_BYTES * model.parameters, "the reference model",
                    "choose another TORCH_DIST")


def check_no_adapters(config: Config) -> None:
    """The hosts' loaders leave out what they do not know, and would train the base."""
    for name, path in (("TORCH_DIST", config.torch_dist), ("SAVE_PATH", config.save_path)):
        if path and has_adapters(path):
            raise ConfigError(f"{name}={path!r}: holds LoRA adapters, which this host would leave out; convert it "
                              "with convert-to-hf.sh, which merges them, and set HF_CKPT to that")


def _check_room(variable: str, path: str, needed: float, what: str, remedy: str) -> None:
    folder = Path(path)
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{variable}={path!r}: {folder} is no writable folder; choose another {variable}")
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ConfigError(
            f"{variable}={path!r}: {free / 1e9:.0f} GB free, {what} will take {needed / 1e9:.0f} GB; {remedy}"
        )


def _check_ports(plan: Plan) -> None:
    for port in (*plan.ports, plan.ports[1] + 1):
        if not plan.config.ray_address and not is_free(port):
            raise ConfigError(f"port {port} is taken, which Ray would need; if a Ray cluster runs here, set "
                              "RAY_ADDRESS=http://127.0.0.1:8265 to use it, else stop what listens there")


def _check_machines(config: Config) -> None:
    if not config.ray_address and config.num_nodes > 1 and is_loopback(config.master_addr):
        raise ConfigError(f"NUM_NODES={config.num_nodes}: set MASTER_ADDR to this machine's address for the others")


def _check_batches(config: Config, layout: Layout) -> None:
    if config.step_trajectories < layout.data_parallel:
        raise ConfigError(
            f"GLOBAL_BATCH_SIZE={config.step_trajectories} trajectories per step are fewer than the "
            f"{layout.data_parallel} data-parallel ranks; raise it, or TP or CP"
        )


def _check_warm_up(config: Config) -> None:
    """Megatron's scheduler asserts that a run is longer than its warm-up."""
    steps = config.num_rollout * (config.trajectories_per_rollout // config.step_trajectories)
    if 0 < steps <= config.lr_warmup_steps:
        raise ConfigError(
            f"LR_WARMUP_STEPS={config.lr_warmup_steps}: the run has {steps} optimizer steps in NUM_ROLLOUT="
            f"{config.num_rollout} rollouts, and Megatron wants more than it warms up; lower it, or raise NUM_ROLLOUT"
        )


def _check_ray() -> None:
    if " " in sys.executable:
        raise ConfigError(f"PYTHON={sys.executable!r}: Ray cannot run from a path with a blank; set PYTHON to another")
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"{sys.executable} has no module ray; set PYTHON to the Python of the host's environment")


def _check_hooks_import(plan: Plan) -> None:
    """Workers must import this pack's hooks, and this machine what converts the reference.

    The first entry of their PYTHONPATH, a folder with a link to this pack, is not written yet: one like it stands in.
    """
    modules = ["rollout", "custom_convert"]
    modules += [] if has_checkpoint(Path(plan.config.torch_dist)) else ["checkpoints.hf_to_torch_dist"]
    code = f"import {', '.join(f'mem_agent.{module}' for module in modules)}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mem_agent").symlink_to(PACK, target_is_directory=True)
        path = os.pathsep.join([folder, *plan.python_path.split(os.pathsep)[1:]])
        done = subprocess.run([sys.executable, "-c", code], cwd=plan.checkout.root, capture_output=True, text=True,
                              env=os.environ | {"PYTHONPATH": path})
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"PYTHON={sys.executable!r} cannot import {' and '.join(modules)}: {reason}; install what "
                          "is missing with pip install --no-deps, which leaves the host's packages as they are")
