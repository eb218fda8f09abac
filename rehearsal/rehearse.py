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

from ..checkpoints.convert import main as convert
from ..config import Config
from ..launch.launch import launch, print_plan
from ..launch.preflight import find_problems, settings_problems
from ..launch.ray_job import cluster, job_address
from ..serving.control import Server
from ..system.errors import MemAgentError
from ..system.logging_setup import start_logging
from ..system.one_line_errors import one_line_errors
from ..system.processes import wait_until_healthy
from ..system.signals import stop_on_signals
from ..training.train import pocket_profile
from .page import Seen, deviations, faults, progress_of, read_log, report
from .rehearsal_plan import Rehearsal, plan_rehearsal
from .slime_shim import start_sglang

logger = logging.getLogger("mem_agent")

WITHOUT_SPARE_WORKERS = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
"""Workers that nobody asked for would import torch on cores that are needed."""
_ENGINE_START_S = 600.0


def rehearse(rehearsal: Rehearsal) -> Seen:
    """Run all of it; what it left behind."""
    plan, config = rehearsal.here, rehearsal.here.config
    joined = config.replace(ray_address=job_address(config, plan.ports))
    more = ["--num-rollout", str(config.num_rollout + 1)]  # behind the launcher's own
    runs = {
        "train": replace(plan, config=joined),
        "resume": replace(plan, config=joined, arguments={**plan.arguments, "resume": more}),
    }
    seconds: dict[str, float] = {}
    log, resumed_from = plan.folder / "job.log", 0
    with cluster(config, plan.ports, plan.layout.gpus_per_node, plan.cpus, plan.folder / "ray_head.log"):
        for phase, run in runs.items():
            began = time.monotonic()
            resumed_from = log.stat().st_size if log.is_file() else 0
            with _engine(rehearsal, phase):
                launch(run, show_progress)
            seconds[phase] = time.monotonic() - began
            logger.info("%s: done in %.0f s", phase, seconds[phase])
    newest = Path(config.save_path) / f"iter_{config.num_rollout:07d}"
    output = Path(config.save_path) / "hf" / newest.name
    if convert(["--input", str(newest), "--hf", config.hf_ckpt, "--output", str(output)]):
        raise MemAgentError(f"{newest} was not converted; the line above says why")
    return Seen(read_log(log), min(read_log(log, resumed_from)["rollout"], default=-1), output, seconds)


def show_progress(lines: str) -> None:
    """Of a host's thousand lines those that say how it goes; ``launch/job.log`` has them all."""
    for line in lines.splitlines():
        if progress := progress_of(line):
            logger.info("%s", progress)


@contextlib.contextmanager
def _engine(rehearsal: Rehearsal, phase: str) -> Iterator[None]:
    """slime's engine for as long as the block lasts, as on a cluster a new one for each run; vime starts its own."""
    plan, config, port = rehearsal.here, rehearsal.here.config, rehearsal.engine_port
    if plan.config.host != "slime":
        yield
        return
    python, model, folder = os.environ["SGLANG_PYTHON"], Path(config.hf_ckpt), plan.folder / phase
    engine = start_sglang(python, model, port, config.engine_max_len, folder, config.seed)
    logger.info("%s: starting SGLang on the CPU; log %s", phase, engine.log_path)

    async def wait() -> None:
        async with aiohttp.ClientSession() as session:
            server = Server(f"http://127.0.0.1:{port}", session)
            await wait_until_healthy(engine, lambda: server.answers("/health"), _ENGINE_START_S)

    try:
        asyncio.run(wait())
        yield
    finally:
        engine.stop(20.0)


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
    with pocket_profile():
        rehearsal = plan_rehearsal(Config.from_env(), Path(sys.prefix) / "sources", options.rollouts, options.ranks)
        folder = Path(rehearsal.here.config.save_path)
        wrong = [f"on the cluster: {line}" for line in settings_problems(rehearsal.cluster)]
        wrong += find_problems(rehearsal.here)
        if options.dry_run:
            print_plan(rehearsal.here)
            print(deviations(rehearsal))
        if wrong or options.dry_run:
            shutil.rmtree(folder, ignore_errors=True)  # nothing in it except the random model
        else:
            seen = rehearse(rehearsal)
            wrong = faults(rehearsal, seen)
            page = report(rehearsal, seen, wrong)
            (folder / "rehearsal.md").write_text(page)
            print(page)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
