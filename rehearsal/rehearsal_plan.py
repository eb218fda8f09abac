"""The cluster's job and its rehearsal, side by side.

Both are plans of the launcher: one for the GPUs that the user has or will rent (NUM_GPUS, 8 unless said, of 80 GiB),
one for this machine. So the list of what differs is not written down anywhere: it is the difference of
two command lines.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..agents import longest_turn
from ..checkpoints.hf_model import load_vocabulary, local_folder
from ..config import Config
from ..data.document_store import row_slice, without_slice
from ..data.shards import is_sharded, training_files
from ..launch.layout import divide
from ..launch.model_args import flag_values, read_model_config
from ..launch.plan import PACK, Plan, make_plan, nvidia_smi
from ..system.ports import free_ports
from .cpu_arguments import SETTINGS, cpu_arguments, cpu_variables
from .shrink import shrink, shrink_description, shrink_layout, shrink_model, write_tiny_model
from .vllm_command import PYTHON as ENGINE_PYTHON
from .vllm_command import engine_variables

TRAIN_ROWS, EVAL_ROWS = 512, 8
_LOGICAL_CPUS = 16
"""What Ray may hand out; the hosts ask for one a GPU and parts of one for each helper."""


@dataclass(frozen=True)
class Rehearsal:
    cluster: Plan
    here: Plan
    random_model: bool
    engine_port: int
    """Where slime's engine is started for it; vime starts its own."""


def plan_rehearsal(config: Config, megatron: Path, rollouts: int, ranks: int) -> Rehearsal:
    """Settle the cluster's job, then shrink it.

    Writes the random model, where one is needed, into the rehearsal's folder.

    Args:
        config: the user's settings, with ``host_root`` given.
        megatron: the host's Megatron-LM, patched.
        rollouts: how many are run before the resume.
        ranks: trainer ranks at most.

    Raises:
        ConfigError: the cluster's job could not work either, or the model cannot be made small.
    """
    config = config.replace(megatron_root=str(megatron))
    cluster = _cluster_plan(config)
    content = read_model_config(Path(cluster.config.hf_ckpt))
    shrunk = shrink(cluster.config, cluster.size)
    longest = longest_turn(shrunk.config, load_vocabulary(cluster.config.hf_ckpt, config.trust_remote_code))
    layout = shrink_layout(cluster.layout, ranks, longest, shrunk.config.step_trajectories)
    with _new_folder(Path(cluster.config.save_path) / "rehearsals") as folder:
        description = cluster.arguments["model"]
        if shrunk.random_model:
            description, model = shrink_description(description), folder / "model"
            write_tiny_model(shrink_model(content), Path(cluster.config.hf_ckpt), model)
        else:
            model = local_folder(config.hf_ckpt).expanduser().absolute()
        ray_port, dashboard_port, _, engine_port = free_ports(4)
        _, other_flags = divide(cluster.config)
        here = shrunk.config.replace(
            hf_ckpt=str(model), torch_dist=str(folder / "reference"), save_path=str(folder),
            num_rollout=rollouts, save_interval=1, train_data=first_rows(cluster.config.train_data, TRAIN_ROWS),
            num_nodes=1, master_addr="127.0.0.1", ray_address="", tp=layout.tp, num_gpus=layout.gpus_per_node,
            tracker="none", host_args=shlex.join(other_flags), **_evaluation(cluster.config),
        )
        plan = replace(make_plan(here, model=description, layout=layout), ports=(ray_port, dashboard_port))
        return Rehearsal(cluster, _for_this_machine(plan, engine_port), shrunk.random_model, engine_port)


@contextlib.contextmanager
def _new_folder(parent: Path) -> Iterator[Path]:
    """A new folder, named by the time; removed if the block fails."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{time.strftime('%Y%m%d-%H%M%S')}-", dir=parent))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _cluster_plan(config: Config) -> Plan:
    """What the same settings are on the cluster."""
    if not config.num_gpus and not nvidia_smi("-L"):
        config = config.replace(num_gpus=8)
    plan = make_plan(config.replace(ray_address=""), weights=False)  # which asks no machine
    return replace(plan, config=plan.config.replace(ray_address=config.ray_address))


def _evaluation(config: Config) -> dict[str, Any]:
    """Evaluate at every rollout: the user's files, else rows of the training file; never in FULLY_ASYNC."""
    training = _first_file(config.train_data)
    files = config.eval_files or [training] * without_slice(training).is_file()
    if config.fully_async or not files:
        return {"eval_interval": 0, "eval_data": ""}
    return {"eval_interval": 1, "eval_data": shlex.join(first_rows(file, EVAL_ROWS) for file in files)}


def _first_file(data: str) -> str:
    """Of shards the first, which has rows enough; any other file as it is."""
    return str(training_files(data)[0]) if is_sharded(data) else data


def first_rows(data: str, count: int) -> str:
    """The first rows of a file or of the user's slice of it, in the slice notation that the hosts share."""
    data, rows = _first_file(data), row_slice(data)
    begin, end = rows.start or 0, rows.stop
    if not data or begin < 0 or (end is not None and end < 0):
        return data  # counted from the end
    return f"{without_slice(data)}@[{begin}:{begin + count if end is None else min(end, begin + count)}]"


def _for_this_machine(plan: Plan, engine_port: int) -> Plan:
    """The plan with what a CPU needs beside it."""
    groups = dict(plan.arguments)
    groups["cpu"] = cpu_arguments(plan.checkout.name, engine_port)
    entries = plan.variables["PYTHONPATH"].split(os.pathsep)
    own = [str(PACK / "rehearsal" / "site"), str(PACK / "rehearsal" / "stubs")]
    python_path = os.pathsep.join([entries[0], *own, *entries[1:]])
    variables = {
        **plan.variables, "PYTHONPATH": python_path, **cpu_variables(plan.checkout.name, os.environ),
        **engine_variables(plan.config, engine_python()),
    }
    return replace(
        plan, arguments=groups, variables=variables, host_settings=SETTINGS,
        cpus=_LOGICAL_CPUS,
    )


def engine_python() -> str:
    """The Python of the pack's own environment, over which this one lies: the one with a vLLM for this machine."""
    return os.environ.get(ENGINE_PYTHON) or sys.executable


_PLACES = {"HF_CKPT", "TORCH_DIST", "SAVE_PATH", "REWARD_ARGS", "--hf-checkpoint", "--ref-load", "--load", "--save",
           "--custom-config-path", "--vllm-port"}


def differences(cluster: Plan, here: Plan) -> list[tuple[str, str, str]]:
    """(setting or flag, on the cluster, here) for each that differs and is no place; a dash where it is not given."""
    one, other = (
        {name: str(value) for name, value in plan.config.to_mapping().items()}
        | {flag: value or "given" for flag, value in flag_values(plan.command).items()}
        for plan in (cluster, here)
    )
    names = dict.fromkeys([*one, *other])
    pairs = [(name, one.get(name, "-"), other.get(name, "-")) for name in names if name not in _PLACES]
    return [(name, there, this) for name, there, this in pairs if there != this]
