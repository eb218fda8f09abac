"""A rehearsed job of slime that is killed and interrupted: its own train.py, the pack's hooks.

The same command goes on from the host's checkpoint. In place of the engines stands a server that samples a function of
prompt and seed, so a drilled run has to have the rollouts, losses and evaluations of an unbroken one. This file is the
drill, and by its argument the two programs that it starts::

    python -m mem_agent.tests.faults.host_drill engine --port N    the stand-in, which tells its requests (faults.py)
    python -m mem_agent.tests.faults.host_drill job                the job, in slime's Python
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from mem_agent.config import Config
from mem_agent.launch.launch import launch
from mem_agent.launch.plan import Plan
from mem_agent.rehearsal.rehearse import WITHOUT_SPARE_WORKERS, Metrics, plan_rehearsal, read_log, show_progress
from mem_agent.system.cli import one_line_errors, start_logging, stop_on_signals
from mem_agent.system.processes import ChildProcess
from mem_agent.tests.helpers import host_actor
from mem_agent.tests.helpers.host_checkout import HOSTS
from mem_agent.tests.helpers.patience import wait_for

from .drill import Strike, drill, evaluating, scene, settings
from .faults import INTERRUPTED, Announcer, Fault, Moment, kill

ROLLOUTS, GROUPS, SIBLINGS = 3, 2, 4
DISKS = {"save": "2g", "tmp": "1g", "/dev/shm": "8g"}
EVALUATION_TEMPERATURE = 0.5
"""By which the engine knows an evaluation; training samples at 1."""
STRIKES = (
    Strike(Fault("train.py killed", kill("/train.py"), 1), Moment.SAMPLING, 1, count=5),
    Strike(INTERRUPTED, Moment.EVALUATION, 0, count=5),
)
"""Rollouts are those since the command was started: behind the first strike the second one is number 0."""


# --- the engine ------------------------------------------------------------------------------------------------------

class HostEngine:
    """SGLang's generation call; takes weights by disk, and forgets them."""

    def __init__(self) -> None:
        self._announcer = Announcer()
        self._evaluates: bool | None = None
        self._updates = 0

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        params = body["sampling_params"]
        evaluates = params["temperature"] == EVALUATION_TEMPERATURE
        if evaluates is not self._evaluates:  # turns are counted anew
            self._announcer.begin(self._updates - 1)
        self._evaluates = evaluates
        self._announcer.announce(Moment.EVALUATION if evaluates else Moment.SAMPLING)
        draw = random.Random(f"{body['input_ids']} {params.get('sampling_seed')}")
        ids = [draw.randrange(20, 200) for _ in range(draw.randint(1, params["max_new_tokens"]))]
        return web.json_response({"text": "", "output_ids": ids, "meta_info": {
            "finish_reason": {"type": "stop"}, "weight_version": str(self._updates),
            "output_token_logprobs": [[-0.01 * token, token, None] for token in ids]}})

    async def new_weights(self, request: web.Request) -> web.Response:
        self._updates += 1
        self._evaluates = None
        return await self.describe(request)

    async def describe(self, request: web.Request) -> web.Response:
        return web.json_response({
            "served_model_name": "drill", "is_generation": True, "tp_size": 1, "pp_size": 1, "dp_size": 1, "nnodes": 1,
            "enable_memory_saver": False, "weight_version": str(self._updates), "loads": [{"num_running_reqs": 0}],
            "success": True, "ok": True, "results": [None],
        })

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/update_weights_from_disk", self.new_weights)
        app.router.add_route("*", "/{path:.*}", self.describe)  # pauses, flushes, aborts: nothing is kept here
        return app


def engine_main(arguments: list[str]) -> int:
    _, port = arguments  # --port N
    web.run_app(HostEngine().app(), host="127.0.0.1", port=int(port), print=None)
    return 0


# --- the job ---------------------------------------------------------------------------------------------------------

def planned(kept: Path) -> tuple[Plan, int]:
    """The plan and the engine's port: those of the first start, as a launch on a cluster has them."""
    if not kept.is_file():
        rehearsal = plan_rehearsal(Config.from_env(), ROLLOUTS, ranks=1)
        plan = rehearsal.here
        plan = replace(plan, host_settings={**plan.host_settings, "sglang_enable_deterministic_inference": True})
        kept.write_bytes(pickle.dumps((plan, rehearsal.engine_port)))
    return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]


@contextlib.contextmanager
def engine(plan: Plan, port: int) -> Iterator[None]:
    process = ChildProcess("engine", [os.environ["SGLANG_PYTHON"], "--port", str(port)], os.environ,
                           plan.folder / "engine.log")
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
def job_main() -> int:
    start_logging()
    stop_on_signals()
    os.environ.update(WITHOUT_SPARE_WORKERS)
    plan, port = planned(Path(os.environ["SAVE_PATH"]) / "plan.pickle")
    plan.folder.mkdir(exist_ok=True)
    with engine(plan, port):
        launch(plan, show_progress)
    return 0


# --- the drill -------------------------------------------------------------------------------------------------------

def run(strikes: tuple[Strike, ...]) -> tuple[Metrics, Metrics, Metrics]:
    """Metrics of the memories by rollout and by evaluation, and of the steps.

    Skips the calling test where slime's checkout or environment is not there.
    """
    [host] = [host for host in HOSTS if host.name == "slime"]
    with scene(DISKS) as place:
        place.leaves += ("pymp-",)  # of multiprocessing, whose processes Ray ends with SIGKILL
        module = "mem_agent.tests.faults.host_drill"
        program = place.folder / "engine"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} engine "$@"\n')
        program.chmod(0o700)
        disk = f"--update-weight-transport disk --update-weight-disk-dir {place.folder / 'save' / 'weights'}"
        more = {
            "HOST": "slime", "HOST_ROOT": host_actor.checkout(host), "MEGATRON_ROOT": host_actor.megatron(host),
            "SGLANG_PYTHON": program, "RAY_TMPDIR": place.folder, "PYTHONPATH": host_actor.importable(place.folder),
            "HOST_ARGS": disk, "REWARD": "mem_agent.rehearsal.shrink:Coin", "ROLLOUT_BATCH_SIZE": GROUPS,
            "N_SAMPLES_PER_PROMPT": SIBLINGS, "EVAL_TEMPERATURE": EVALUATION_TEMPERATURE, **evaluating(place),
        }
        drill(place, settings(place, **more), strikes, [host_actor.rehearsal_python(), "-m", module, "job"])
        [log] = place.save.glob("rehearsals/*/launch/job.log")
        found = read_log(log)
        return _memory(found.get("rollout", {})), _memory(found.get("eval", {})), found.get("step", {})


def _memory(metrics: Metrics) -> Metrics:
    kept = {n: {name: value for name, value in of.items() if "/memory/" in name} for n, of in metrics.items()}
    return {number: of for number, of in kept.items() if of}


def host_drill() -> None:
    """
    Raises:
        AssertionError: the drilled run did not come to what the unbroken one has.
    """
    (rollouts, evaluations, steps), found = run(()), run(STRIKES)
    assert found[0] == rollouts and len(rollouts) == ROLLOUTS
    # Hosts do not repeat an evaluation that was broken off behind its checkpoint.
    assert len(found[1]) >= len(evaluations) - 1
    assert all(metrics == evaluations[number] for number, metrics in found[1].items())
    assert found[2].keys() == steps.keys()
    for number, step in found[2].items():
        for name in ("train/pg_loss", "train/kl_loss", "train/grad_norm"):
            assert step[name] == pytest.approx(steps[number][name], rel=1e-4, abs=1e-6), (number, name)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(job_main() if sys.argv[1] == "job" else engine_main(sys.argv[2:]))
