"""The cluster's job and its rehearsal, side by side.

Both are plans of the launcher: one for the GPUs that the user has or will rent (NUM_GPUS, 8 unless said, of 80 GiB),
one for this machine. So the list of what differs is not written down anywhere: it is the difference of
two command lines.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..agents import longest_turn
from ..checkpoints.hf_model import load_vocabulary, local_folder, parameter_count
from ..config import Config, ConfigError
from ..data.training_file import is_sharded, row_slice, training_files, without_slice
from ..launch.find_host import HOSTS
from ..launch.layout import divide
from ..launch.model_args import describe, read_model_config
from ..launch.plan import PACK, Plan, make_plan, nvidia_smi
from ..system.server_url import free_ports
from .cpu_job import SETTINGS, cpu_arguments, cpu_variables
from .shrink import SMALL_MODEL, shrink, shrink_layout, shrink_model, write_tiny_model
from .vime_shim import PYTHON, engine_variables

TRAIN_ROWS, EVAL_ROWS = 512, 8
_LOGICAL_CPUS = 16
"""What Ray may hand out; the hosts ask for one a GPU and parts of one for each helper."""
_GPU_ONLY = {"--colocate", "--offload", "--offload-train", "--offload-rollout"}
"""Flags of HOST_ARGS that are left out: trainer and engine share no GPU here."""


@dataclass(frozen=True)
class Rehearsal:
    cluster: Plan
    here: Plan
    engine_port: int
    """Where slime's engine is started for it; vime starts its own."""
    random_model: bool


def plan_rehearsal(config: Config, rollouts: int, ranks: int) -> Rehearsal:
    """Settle the cluster's job, then shrink it.

    Writes the random model, where one is needed, into the rehearsal's folder.

    Args:
        rollouts: how many are run before the resume.
        ranks: trainer ranks at most.

    Raises:
        ConfigError: something that it needs is not there, or the cluster's job could not work either.
    """
    if config.host not in HOSTS or config.supervised:
        raise ConfigError(f"HOST={config.host} LOSS={config.loss}: REHEARSE=1 rehearses rollouts in a host; set HOST "
                          f"to {' or '.join(HOSTS)}, and train a few rows of LOSS=sft with HOST=local")
    if config.host == "slime" and not os.environ.get("SGLANG_PYTHON"):
        raise ConfigError("SGLANG_PYTHON is not set; `REHEARSE=1 HOST=slime bash run-train.sh` makes its environment")
    config = config.replace(engine_args="")  # a recipe of this machine may be rehearsed, not its engines
    if not config.num_gpus and not nvidia_smi("-L"):
        config = config.replace(num_gpus=8)
    cluster = make_plan(config, weights=False)
    given, description, shrunk = Path(cluster.config.hf_ckpt), cluster.arguments["model"], cluster.config
    folder = Path(cluster.config.save_path) / "rehearsals" / time.strftime("%Y%m%d-%H%M%S")
    content = read_model_config(given)
    random_model = parameter_count(content) > SMALL_MODEL
    if random_model:
        shrunk, model, tiny = shrink(shrunk), folder / "model", shrink_model(content)
        description = describe(tiny)
        write_tiny_model(tiny, given, model)
    else:
        model = local_folder(config.hf_ckpt).expanduser().absolute()
    longest = longest_turn(shrunk, load_vocabulary(given, config.trust_remote_code))
    layout = shrink_layout(cluster.layout, ranks, longest, shrunk.step_trajectories)
    _, other_flags = divide(cluster.config)
    here = shrunk.replace(
        hf_ckpt=str(model), torch_dist=str(folder / "reference"), save_path=str(folder), lr_warmup_steps=0,
        num_rollout=rollouts, save_interval=1, num_nodes=1, master_addr="127.0.0.1", ray_address="", tp=layout.tp,
        num_gpus=layout.gpus_per_node, tracker="none",
        host_args=shlex.join(flag for flag in other_flags if flag not in _GPU_ONLY), **_data(cluster.config),
    )
    ray_port, dashboard_port, _, engine_port = free_ports(4)
    plan = replace(make_plan(here, model=description, layout=layout), ports=(ray_port, dashboard_port))
    return Rehearsal(cluster, _for_this_machine(plan, engine_port), engine_port, random_model)


def _data(config: Config) -> dict[str, Any]:
    """Rows of the training file, and an evaluation at every rollout, never in FULLY_ASYNC: of the user's files, else
    of the training file. Of shards the first has rows enough.
    """
    training = str(training_files(config.train_data)[0]) if is_sharded(config.train_data) else config.train_data
    evaluated = [] if config.fully_async else config.eval_files or [training]
    return {
        "train_data": first_rows(training, TRAIN_ROWS), "eval_interval": int(bool(evaluated)),
        "eval_data": shlex.join(first_rows(file, EVAL_ROWS) for file in evaluated),
    }


def first_rows(data: str, count: int) -> str:
    """The first rows of a file or of the user's slice of it, in the slice notation that the hosts share."""
    rows = row_slice(data)
    if not data or min(rows.start or 0, rows.stop or 0) < 0:  # counted from the end
        return data
    kept = range(sys.maxsize)[rows][:count]
    return f"{without_slice(data)}@[{kept.start}:{kept.stop}]"


def _for_this_machine(plan: Plan, engine_port: int) -> Plan:
    """The plan with what a CPU needs beside it."""
    own = PACK / "rehearsal"
    first, *others = plan.variables["PYTHONPATH"].split(os.pathsep)
    python_path = os.pathsep.join([first, str(own / "site"), str(own / "stubs"), *others])
    # The pack's own environment, over which this one lies, has a vLLM for this machine.
    engines = engine_variables(plan.config, os.environ.get(PYTHON) or sys.executable)
    variables = {**plan.variables, "PYTHONPATH": python_path, **cpu_variables(os.environ), **engines}
    arguments = {**plan.arguments, "cpu": cpu_arguments(plan.config.host, engine_port)}
    return replace(plan, arguments=arguments, variables=variables, host_settings=SETTINGS, cpus=_LOGICAL_CPUS)

