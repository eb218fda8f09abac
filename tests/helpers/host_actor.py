"""The trainer of slime or vime as a function: jobs for ``inside_host/actor_steps.py``, and what came out.

The command line is the launcher's, with what a CPU needs behind it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import load_file
from torch import Tensor

from mem_agent.config import Config
from mem_agent.launch.arguments import build_arguments
from mem_agent.launch.layout import Layout
from mem_agent.launch.model_args import describe, read_model_config
from mem_agent.rehearsal.cpu_job import SETTINGS, cpu_arguments, cpu_variables
from mem_agent.tests.helpers.host_checkout import STUBS, TESTS, Host, named
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


@dataclass
class Job:
    """One life of the trainer: built, trained on each rollout in turn."""

    name: str
    host: str
    arguments: list[str]
    rollouts: list[str]
    """JSON files of converter rows."""
    out: str
    ranks: int = 1
    save_after: list[int] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    """Jobs that must have ended before."""
    fp32_cross_entropy: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a job left; rows in the rollout's order."""

    rows: list[dict[str, list[list[float]]]]
    """Of each rollout: ``log_probs``, ``ref_log_probs``, ``advantages``."""
    steps: list[dict[str, float]]
    weights: list[dict[str, Tensor]]
    """After each rollout, by their Hugging Face names."""


def megatron(host: Host) -> Path:
    return named("MEGATRON_ROOT", "Megatron-LM with docker/patch/latest/megatron.patch of the host")


def rehearsal_python() -> str:
    """Of the environment that a rehearsal makes beside the pack's."""
    return str(named("REHEARSAL_PYTHON", "Python of the hosts' CPU environment", f"{sys.prefix}-hosts/bin/python"))


def sglang_python() -> str:
    return str(named("SGLANG_PYTHON", "Python with sglang", f"{sys.prefix}-sglang/bin/python"))


def command_line(host: Host, config: Config, folder: Path, *, tp: int = 1, pp: int = 1, dp: int = 1) -> list[str]:
    """The arguments of the host's ``train.py``; ``folder`` gets the settings file they name."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "mem_agent.yaml"
    settings.write_text(config.to_yaml() + yaml.safe_dump(SETTINGS))
    layout = Layout(tp=tp, pp=pp, cp=1, tokens_per_gpu=config.max_tokens_per_gpu, engine_gpus=1, colocate=False,
                    train_nodes=1, train_per_node=tp * pp * dp, rollout_gpus=1, gpus_per_node=tp * pp * dp)
    model = describe(read_model_config(Path(config.hf_ckpt)))
    groups = build_arguments(config.replace(host=host.name), model, layout, settings)
    launcher = (item for group in groups.values() for item in group)
    no_engine = ("--distributed-backend", "gloo", "--debug-train-only")
    return [*launcher, *cpu_arguments(host.name, engine_port=1), *no_engine]


def run(host: Host, jobs: Sequence[Job], folder: Path) -> dict[str, Outcome]:
    """All jobs in one process of the host's environment, forked for each rank."""
    for job in jobs:
        Path(job.out).mkdir(parents=True, exist_ok=True)
    listed = folder / f"{host.name}_jobs.json"
    listed.write_text(json.dumps([asdict(job) for job in jobs]))
    roots = [STUBS, megatron(host), host.checkout(), importable(folder)]
    environment = inherited() | cpu_variables(os.environ)
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, roots)), "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    command = [rehearsal_python(), "-Wignore", "-m", "mem_agent.tests.inside_host.actor_steps", str(listed)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    logs = "".join(path.read_text()[-3000:] for job in jobs for path in sorted(Path(job.out).glob("log_*.txt")))
    assert done.returncode == 0, done.stderr[-4000:] + logs
    return {job.name: read(job) for job in jobs}


def inherited() -> dict[str, str]:
    """The environment of this process, without the choice of attention that Megatron leaves in it, an earlier test's:
    it refuses another one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NVTE_")}


def importable(folder: Path) -> Path:
    """A folder for PYTHONPATH in which this pack is called ``mem_agent``, for environments it is not installed in."""
    link = folder / "import" / "mem_agent"
    if not link.is_symlink():
        link.parent.mkdir()
        link.symlink_to(TESTS.parent)
    return link.parent


def read(job: Job) -> Outcome:
    """The last rank's metrics (a pipeline's first stages have none) and every rank's rows."""
    ranks = [json.loads((Path(job.out) / f"rank{rank}.json").read_text()) for rank in range(job.ranks)]
    start, count = ranks[0]["start"], len(job.rollouts)
    rows = [_in_order([rank["rows"][number] for rank in ranks]) for number in range(count)]
    weights = [_weights(Path(job.out) / f"hf_{start + number}") for number in range(count)]
    return Outcome(rows, ranks[-1]["steps"], weights)


def _in_order(shares: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    ordered: dict[str, dict[int, list[float]]] = {}
    for share in shares:
        for key in share.keys() - {"partition"}:
            ordered.setdefault(key, {}).update(zip(share["partition"], share[key], strict=True))
    return {key: [value for _, value in sorted(values.items())] for key, values in ordered.items()}


def _weights(folder: Path) -> dict[str, Tensor]:
    """Without the embedding again, where they are tied."""
    files = map(load_file, sorted(folder.glob("*.safetensors")))
    return {name: tensor for file in files for name, tensor in file.items() if name != "lm_head.weight"}
