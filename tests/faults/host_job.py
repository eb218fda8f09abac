"""A rehearsed job of slime or vime under drill: ``python -m mem_agent.tests.faults.host_job``, in the hosts' Python.

The first start settles the plan of a rehearsal and keeps it; every further start of the same command runs that plan
again, in the same SAVE_PATH, as a launch on a cluster does. What differs from a rehearsal: the engine
(``host_engine``), seeds for each sample, the converter's rows are counted, and kept trajectories have a disk of their
own where the drill has one.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mem_agent import custom_convert
from mem_agent.config import Config
from mem_agent.launch.launch import launch
from mem_agent.launch.plan import Plan
from mem_agent.rehearsal.rehearse import WITHOUT_SPARE_WORKERS, settled, show_progress
from mem_agent.system.logging_setup import start_logging
from mem_agent.system.one_line_errors import one_line_errors
from mem_agent.system.processes import ChildProcess
from mem_agent.system.save_lock import save_lock
from mem_agent.system.signals import stop_on_signals
from mem_agent.tests.helpers.patience import wait_for
from mem_agent.traces.read_traces import FOLDER

HANDED, KEPT, ENGINE = "MEM_AGENT_DRILL_HANDED", "MEM_AGENT_DRILL_KEPT", "MEM_AGENT_ENGINE_PYTHON"
"""Variables: the file of what the trainer was handed, the disk for trajectories, the program that is an engine."""


def convert(args: Any, samples: list[Any]) -> dict[str, list[Any]]:
    """The pack's converter, which writes down what it hands to the host's trainer: a line for each rollout."""
    data = custom_convert.custom_convert(args, samples)
    trained = [number for number, mask in zip(data["rollout_ids"], data["loss_masks"], strict=True) if any(mask)]
    handed = {"samples": sorted(set(data["rollout_ids"])), "trained": sorted(set(trained))}
    with Path(os.environ[HANDED]).open("a") as file:
        file.write(json.dumps(handed) + "\n")
    return data


def planned(kept: Path) -> tuple[Plan, int]:
    """The plan and the engine's port, those of the first start."""
    if not kept.is_file():
        rehearsal = settled(Config.from_env(), Path(sys.prefix) / "sources")
        plan = rehearsal.here
        seeds = f"{'sglang' if plan.checkout.name == 'slime' else 'vllm'}_enable_deterministic_inference"
        plan = replace(plan, host_settings={**plan.host_settings, seeds: True})
        if os.environ.get(KEPT):
            (Path(plan.config.save_path) / FOLDER).symlink_to(os.environ[KEPT])
        kept.write_bytes(pickle.dumps((plan, rehearsal.engine_port)))
    plan, port = pickle.loads(kept.read_bytes())
    return plan, port


@contextlib.contextmanager
def engine(plan: Plan, port: int) -> Iterator[None]:
    """slime's, as in a rehearsal; vime starts its own."""
    if plan.checkout.name != "slime":
        yield
        return
    process = ChildProcess("engine", [os.environ[ENGINE], "--port", str(port)], os.environ, plan.folder / "engine.log")
    try:
        wait_for(lambda: _answers(port))
        yield
    finally:
        process.stop(20.0)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
        return True
    return False


@one_line_errors("the same command continues from the newest checkpoint")
def main() -> int:
    start_logging()
    stop_on_signals()
    os.environ.update(WITHOUT_SPARE_WORKERS)
    plan, port = planned(Path(os.environ["SAVE_PATH"]) / "plan.pickle")
    plan.folder.mkdir(exist_ok=True)
    with save_lock(plan.config.save_path), engine(plan, port):
        launch(plan, show_progress)
    return 0


if __name__ == "__main__":
    sys.exit(main())
