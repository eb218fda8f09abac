"""Rehearse a cluster job on this machine: ``REHEARSE=1 HOST=slime|vime ... bash run-train.sh``.

    mem-agent rehearse [--rollouts 2] [--ranks 2]     in the hosts' CPU environment, which the script makes

In order: settle the cluster's job and its small likeness; start what the host expects to find (slime: an engine); run
the host's own ``train.py`` through the launcher, some rollouts with a checkpoint and an evaluation after
each; run it again for one more, so that it resumes; convert the newest checkpoint; print what was seen and what not.
Everything lies under ``SAVE_PATH/rehearsals/<time>``, the page as ``rehearsal.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil

from ..checkpoints.convert import main as convert
from ..config import Config, ConfigError
from ..launch.checkout import TESTED, find_checkout
from ..launch.launch import launch, print_plan
from ..launch.layout import logit_bytes
from ..launch.plan import PACK, Plan
from ..launch.preflight import find_problems, given_flags, settings_problems
from ..launch.ray_job import cluster, job_address
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.logging_setup import start_logging
from ..system.one_line_errors import one_line_errors
from ..system.processes import wait_until_healthy
from ..system.signals import stop_on_signals
from ..training.whole_run import pocket_profile
from .host_log import progress_of, read_log
from .rehearsal_plan import Rehearsal, plan_rehearsal
from .slime_shim import start_sglang
from .sources import commit_of, prepared_megatron
from .table import Seen, deviations, faults, report

logger = logging.getLogger("mem_agent")

WITHOUT_SPARE_WORKERS = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
"""Workers that nobody asked for would import torch on cores that are needed."""
_ENGINE_START_S = 600.0


def rehearse(rehearsal: Rehearsal) -> Seen:
    """Run all of it; what it left behind."""
    plan, config = rehearsal.here, rehearsal.here.config
    joined = config.replace(ray_address=job_address(config, plan.ports))
    runs = {"train": joined, "resume": joined.replace(num_rollout=config.num_rollout + 1)}
    seconds: dict[str, float] = {}
    log, resumed_from = plan.folder / "job.log", 0
    with cluster(config, plan.ports, plan.layout.gpus_per_node, plan.cpus, plan.folder / "ray_head.log"):
        for phase, settings in runs.items():
            resumed_from = log.stat().st_size if log.is_file() else 0
            with _timed(seconds, phase), _engine(rehearsal, phase):
                launch(with_config(plan, settings), show_progress)
            logger.info("%s: done in %.0f s", phase, seconds[phase])
    newest = Path(config.save_path) / f"iter_{config.num_rollout:07d}"
    output = Path(config.save_path) / "hf" / newest.name
    with _timed(seconds, "convert"):
        code = convert(["--input", str(newest), "--hf", config.hf_ckpt, "--output", str(output)])
    if code:
        raise MemAgentError(f"{newest} was not converted; the line above says why")
    resumed = read_log(log, resumed_from).get("rollout", {})
    return Seen(read_log(log), min(resumed, default=-1), str(output), seconds, commit_of(plan.checkout))


def show_progress(lines: str) -> None:
    """Of a host's thousand lines those that say how it goes; ``launch/job.log`` has them all."""
    for line in lines.splitlines():
        if progress := progress_of(line):
            logger.info("%s", progress)


def with_config(plan: Plan, config: Config) -> Plan:
    """The same plan for a run of ``config.num_rollout`` rollouts."""
    arguments = {name: list(group) for name, group in plan.arguments.items()}
    rollout = arguments["rollout"]
    rollout[rollout.index("--num-rollout") + 1] = str(config.num_rollout)
    return replace(plan, config=config, arguments=arguments)


@contextlib.contextmanager
def _timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[phase] = time.monotonic() - began


@contextlib.contextmanager
def _engine(rehearsal: Rehearsal, phase: str) -> Iterator[None]:
    """slime's engine for as long as the block lasts, as on a cluster a new one for each run; vime starts its own."""
    plan, config = rehearsal.here, rehearsal.here.config
    if plan.checkout.name != "slime":
        yield
        return
    python, model = os.environ["SGLANG_PYTHON"], Path(config.hf_ckpt)
    folder = plan.folder / phase
    engine = start_sglang(python, model, rehearsal.engine_port, config.engine_max_len, folder, config.seed)
    try:
        logger.info("%s: starting SGLang on the CPU; log %s", phase, engine.log_path)
        url = f"http://127.0.0.1:{rehearsal.engine_port}/health"
        asyncio.run(wait_until_healthy(engine, lambda: _answers(url), _ENGINE_START_S))
        yield
    finally:
        engine.stop(20.0)


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def own_problems(rehearsal: Rehearsal, available: int) -> list[str]:
    """What stops a rehearsal alone, a line each.

    Memory is 3 GB for the processes, and 12 bytes for each logit of the micro-batches that are computed side by side,
    in vime 22 (``launch.layout`` has measured them).

    Args:
        available: bytes of memory that are free.
    """
    plan, config = rehearsal.here, rehearsal.here.config
    found = []
    logits = plan.layout.tokens_per_gpu * plan.layout.data_parallel * plan.size.vocab
    needed = _PROCESSES_BYTES + logits * logit_bytes(config)
    if available < needed:
        found.append(f"too little memory: {available / 1e9:.1f} GB are free, this rehearsal takes about "
                     f"{needed / 1e9:.1f} GB; close other programs, or give --ranks 1")
    reason = "trainer and engine share no GPU here; leave it out, the launcher adds it by itself where they do"
    found += [f"HOST_ARGS: {flag} cannot be rehearsed: {reason}" for flag in _GPU_ONLY if flag in given_flags(config)]
    return found


_PROCESSES_BYTES = 3e9
_GPU_ONLY = ("--colocate", "--offload", "--offload-train", "--offload-rollout")
"""Flags of the hosts under which a CPU run ends minutes after its start."""


def settled(config: Config, home: Path, rollouts: int, ranks: int) -> Rehearsal:
    """The rehearsal of ``config``; ``rollouts`` and ``ranks`` as the options of the command.

    Raises:
        ConfigError: something that it needs is not there.
    """
    config = config.replace(engine_args="")  # a recipe of this machine may be rehearsed, not its engines
    if config.host not in TESTED:
        raise ConfigError(f"HOST={config.host}: REHEARSE=1 rehearses a host's job; set HOST to {' or '.join(TESTED)}")
    if config.supervised:
        raise ConfigError("LOSS=sft: it has no rollouts, which REHEARSE=1 rehearses; train a few rows with HOST=local")
    checkout = find_checkout(config, PACK)
    known, found = TESTED[checkout.name], commit_of(checkout)
    if found != known:
        logger.warning("%s is at %s; this pack was tested with %s", checkout.root, found[:8] or "no commit", known[:8])
    if checkout.name == "slime" and not os.environ.get("SGLANG_PYTHON"):
        raise ConfigError("SGLANG_PYTHON is not set; `REHEARSE=1 HOST=slime bash run-train.sh` makes its environment")
    return plan_rehearsal(config, prepared_megatron(checkout, config.megatron_root, home), rollouts, ranks)


@one_line_errors("the same command starts a new rehearsal")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent rehearse", description="Rehearse a cluster job on this machine.")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, start nothing")
    parser.add_argument("--rollouts", type=int, default=2, help="rollouts before it is ended and resumed for one more")
    parser.add_argument("--ranks", type=int, default=2, choices=range(1, 5), help="trainer ranks at most")
    options = parser.parse_args(argv)
    start_logging()
    stop_on_signals()
    os.environ.update(WITHOUT_SPARE_WORKERS)
    with pocket_profile(options.dry_run):
        return _rehearsed(options)


def _rehearsed(options: argparse.Namespace) -> int:
    rehearsal = settled(Config.from_env(), Path(sys.prefix) / "sources", options.rollouts, options.ranks)
    folder = Path(rehearsal.here.config.save_path)
    problems = [
        *(f"on the cluster: {line}" for line in settings_problems(rehearsal.cluster)),
        *find_problems(rehearsal.here),
        *own_problems(rehearsal, psutil.virtual_memory().available),
    ]
    if options.dry_run:
        print_plan(rehearsal.here)
        print(deviations(rehearsal))
    for line in problems:
        print(f"error: {line}", file=sys.stderr)
    if problems or options.dry_run:
        shutil.rmtree(folder)  # nothing in it but the random model
        return 1 if problems else 0
    seen = rehearse(rehearsal)
    wrong = faults(rehearsal, seen)
    page = report(rehearsal, seen, wrong)
    write_atomically(folder / "rehearsal.md", page.encode())
    print(page)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
