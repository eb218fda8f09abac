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

import pytest
import yaml
from safetensors.torch import load_file
from torch import Tensor

from mem_agent.config import Config
from mem_agent.launch.arguments import build_arguments
from mem_agent.launch.layout import Layout
from mem_agent.launch.model_args import describe, read_model_config
from mem_agent.rehearsal.cpu_job import SETTINGS, cpu_arguments, cpu_variables
from mem_agent.tests.helpers.host_checkout import TESTS, Host
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

_REHEARSED = Path(f"{sys.prefix}-hosts")
"""The environment that a rehearsal makes beside the pack's."""
_NO_ENGINE = ("--distributed-backend", "gloo", "--debug-train-only")


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


def checkout(host: Host) -> Path:
    """Unlike ``Host.root`` it asks for none of the host's packages: they are in another environment."""
    folder = os.environ.get(host.variable, "")
    if not os.path.isdir(folder):
        pytest.skip(f"{host.variable} names no checkout of {host.name}")
    return Path(folder)


def megatron(host: Host) -> Path:
    """Megatron-LM with the host's patches."""
    root = Path(os.environ.get("MEGATRON_ROOT", "/nowhere"))
    if not root.is_dir():
        pytest.skip("MEGATRON_ROOT names no Megatron-LM with the host's patches")
    return root


def rehearsal_python() -> str:
    python = Path(os.environ.get("REHEARSAL_PYTHON") or _REHEARSED / "bin" / "python")
    if not python.is_file():
        pytest.skip("REHEARSAL_PYTHON names no Python of the hosts' CPU environment, and no rehearsal has made it")
    return str(python)


def sglang_python() -> str:
    python = Path(os.environ.get("SGLANG_PYTHON") or f"{sys.prefix}-sglang/bin/python")
    if not python.is_file():
        pytest.skip("SGLANG_PYTHON names no Python with sglang, and no rehearsal has made its environment")
    return str(python)


def command_line(
    host: Host, config: Config, folder: Path, *, tp: int = 1, pp: int = 1, dp: int = 1, more: Sequence[str] = ()
) -> list[str]:
    """The arguments of the host's ``train.py``; ``folder`` gets the settings file they name."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "mem_agent.yaml"
    settings.write_text(config.to_yaml() + yaml.safe_dump(SETTINGS))
    layout = Layout(
        tp=tp, pp=pp, cp=1, tokens_per_gpu=config.max_tokens_per_gpu, engine_gpus=1, colocate=False, train_nodes=1,
        train_per_node=tp * pp * dp, rollout_gpus=1, gpus_per_node=tp * pp * dp,
    )
    model = describe(read_model_config(Path(config.hf_ckpt)))
    groups = build_arguments(config.replace(host=host.name), model, layout, settings, False)
    launcher = (item for group in groups.values() for item in group)
    return [*launcher, *cpu_arguments(host.name, engine_port=1), *_NO_ENGINE, *more]


def run(host: Host, jobs: Sequence[Job], folder: Path) -> dict[str, Outcome]:
    """All jobs in one process of the host's environment, forked for each rank."""
    for job in jobs:
        Path(job.out).mkdir(parents=True, exist_ok=True)
    listed = folder / f"{host.name}_jobs.json"
    listed.write_text(json.dumps([asdict(job) for job in jobs]))
    roots = [TESTS.parent / "rehearsal" / "stubs", megatron(host), checkout(host), importable(folder)]
    environment = inherited() | cpu_variables(os.environ) | {
        "PYTHONPATH": os.pathsep.join(map(str, roots)), "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    command = [rehearsal_python(), "-Wignore", "-m", "mem_agent.tests.inside_host.actor_steps", str(listed)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:] + _logs(jobs)
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


def _logs(jobs: Sequence[Job]) -> str:
    failed = (path for job in jobs for path in sorted(Path(job.out).glob("log_*.txt")))
    texts = [(path, path.read_text(errors="replace")) for path in failed]
    return "".join(f"\n=== {path}\n{text[-3000:]}" for path, text in texts if "Traceback" in text)


def read(job: Job) -> Outcome:
    """The last rank's metrics (a pipeline's first stages have none) and every rank's rows."""
    ranks = [json.loads((Path(job.out) / f"rank{rank}.json").read_text()) for rank in range(job.ranks)]
    rows = [_in_order([rank["rows"][n] for rank in ranks if rank["rows"]]) for n in range(len(job.rollouts))]
    start = ranks[0]["start"]
    weights = [_weights(Path(job.out) / f"hf_{start + n}") for n in range(len(job.rollouts))]
    return Outcome(rows, ranks[-1]["steps"], weights)


def _in_order(shares: list[dict[str, Any]]) -> dict[str, list[list[float]]]:
    ordered: dict[str, dict[int, list[float]]] = {}
    for share in shares:
        for key in share.keys() - {"partition"}:
            ordered.setdefault(key, {}).update(zip(share["partition"], share[key], strict=True))
    return {key: [values[i] for i in range(len(values))] for key, values in ordered.items()}


def _weights(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    found.pop("lm_head.weight", None)  # the embedding again, where they are tied
    return found
