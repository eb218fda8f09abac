"""The rollout side of a run: engines behind one router, kept alive, always serving the weights they claim to serve.

::

    async with Fleet(config, model_folder) as fleet:
        await fleet.sync_weights(trainer.export_hf(), version="1")
        await fleet.ensure_alive()              # before each rollout, and after one that lost trajectories
        ...                                     # generate at fleet.url

New weights reach the engines through one complete ``model.safetensors`` in shared memory, or in the run's folder where
that has no room for two copies. It is replaced by one rename, so an engine that is started at any moment reads either
the previous or the current weights, never a torn file.

Invariants:

- Between syncs the router only knows engines that confirmed the fleet's current version.
- Weights change on a paused engine, and it only resumes after reload, confirmed version and empty prefix cache. An
  engine that cannot get there is replaced, never resumed.
- An engine has answered a request before anybody relies on it: what it dies of is the error of its start.
- A replaced engine has a new port and the current weights before the router hears of it.
- ``stop`` ends every process that this fleet started, and no other; it is not interrupted by cancellation.

``mem-agent serve-engines --model DIR [--port P]`` is a fleet and no more: one line ``READY http://127.0.0.1:PORT`` on
standard output once every engine is healthy; on SIGTERM or SIGINT it stops all and exits with 0. Exit code 2 is
a bad argument or setting, 1 a fleet that cannot start or stay up; both with one line that says why.

Methods are for one asyncio loop; ``sync_weights`` and ``ensure_alive`` exclude each other.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import aiohttp
import torch

from ..checkpoints.hf_folder import HfTensors, save_weights
from ..checkpoints.hf_model import model_to_ask
from ..checkpoints.precision import with_train_dtype
from ..config import Config, ConfigError
from ..system.cli import log_to_terminal, one_line_errors, run_stoppable, whole_number
from ..system.concurrency import gather_or_cancel
from ..system.files import SHARED_MEMORY, scratch_folder
from ..system.processes import TERM_GRACE_S, ChildProcess, FleetError, ProcessError, wait_until_healthy
from ..system.server_url import free_ports, is_free
from . import servers
from .control import ADMIT_TIMEOUT_S, HUNG_TIMEOUT_S, ControlError, EngineClient, Server

log = logging.getLogger(__name__)

ROOM_FACTOR = 6
"""The old and the new copy exist together, each float32 where the checkpoint may be 16 bits, plus half of that as room
for others."""
REPLACE_GRACE_S = 3.0
START_TIMEOUT_S = 600.0
CHECK_EVERY_S = 10.0
MOST_RESTARTS = 3
"""Servers replaced between two weight syncs before the run ends: one may be lost now and then."""


@dataclass
class Engine:
    index: int
    process: ChildProcess
    client: EngineClient
    """For control calls."""
    settled: bool = False
    """Serving, not somewhere inside a weight update."""


class Fleet:
    """Starts and owns ``config.num_engines`` engines and a router; use as an async context manager."""

    def __init__(
        self, config: Config, model: str | Path, *, run_folder: str | Path | None = None, port: int = 0
    ) -> None:
        """``port``: the router's; 0: a free one, chosen by ``start``."""
        self.model = Path(model).resolve()
        self.config = with_train_dtype(config, self.model)  # a trainer has settled it already
        self.logs = Path(run_folder or config.save_path).resolve() / "logs"
        self.port = port
        self.version = "0"
        """The weight version that every engine has confirmed, or is about to while a sync runs."""
        self.restarts = 0
        self.device: servers.Device = "cuda" if torch.cuda.is_available() else "cpu"
        self.engines: list[Engine] = []
        self._restarts_at_sync = 0
        self._synced = False
        self._used: list[int] = []
        """Ports that servers of this fleet have or had: the router must not mistake a new server for an old one."""
        self._exits = contextlib.AsyncExitStack()
        self._processes: list[ChildProcess] = []
        self._busy = asyncio.Lock()

    @property
    def url(self) -> str:
        """Where to send generation requests."""
        return f"http://127.0.0.1:{self.port}"

    # --- life -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Fleet:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Engines in parallel with the router; returns once all serve version ``self.version``."""
        began = time.monotonic()
        if self.port and not is_free(self.port):  # answers from there would be taken for our router's
            raise ConfigError(f"port {self.port} on 127.0.0.1 is in use or only root's; choose another one or none")
        self.port = self.port or self._new_port()
        # A new connection per control call: a kept one may have been closed by the server since the last sync.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        await self._exits.enter_async_context(self._session)
        self._router_client = Server(self.url, self._session)
        size = sum(file.stat().st_size for file in self.model.glob("*.safetensors"))
        roomy = SHARED_MEMORY is not None and shutil.disk_usage(SHARED_MEMORY).free >= ROOM_FACTOR * size
        self.logs.mkdir(parents=True, exist_ok=True)
        parent = SHARED_MEMORY if roomy else self.logs.parent
        self._folder = self._exits.enter_context(scratch_folder("mem_agent-weights-", parent))
        # Elsewhere a path may be longer than the 107 bytes of a socket's.
        self._sockets = self._exits.enter_context(scratch_folder("mem_agent-sockets-", SHARED_MEMORY))
        _, *self.engines = await gather_or_cancel(
            self._start_router(), *(self._start_engine(index) for index in range(self.config.num_engines))
        )
        await gather_or_cancel(*(self._load_current(engine) for engine in self.engines))
        await self._admit()
        log.info("%d engine(s) behind %s after %.1f s", len(self.engines), self.url, time.monotonic() - began)

    async def stop(self) -> None:
        """End everything this fleet started. The part that ends processes does not await, so it always completes."""
        for process in self._processes:
            if process is self._router:  # at once: its open requests would keep it and the engines waiting
                process.stop(0.0)
            process.terminate()
        deadline = time.monotonic() + TERM_GRACE_S
        while self._processes:
            self._processes.pop().stop(deadline - time.monotonic())
        self.engines = []
        await self._exits.aclose()

    # --- weights ----------------------------------------------------------------------------------------------------

    async def sync_weights(self, tensors: Mapping[str, torch.Tensor], version: str) -> float:
        """Give every engine these weights under this version; returns the seconds it took.

        ``tensors`` has the checkpoint's names, all of them: vLLM would silently keep old values for missing ones.
        """
        began = time.monotonic()
        if missing := sorted(set(HfTensors(self.model).shapes) - set(tensors)):
            raise FleetError(f"weight sync {version}: {len(missing)} tensors of {self.model} are missing, e.g. "
                             f"{missing[0]}; pass the whole state under checkpoint names")
        async with self._busy:
            await asyncio.to_thread(write_weights, tensors, self._folder)
            self._synced, self.version = True, version
            await self._update_all()
            self._restarts_at_sync = self.restarts
        return time.monotonic() - began

    async def start_over(self) -> None:
        """Every engine as right after the last sync: nothing in flight, nothing cached."""
        async with self._busy:
            await self._update_all()

    async def _update_all(self) -> None:
        await gather_or_cancel(*(self._update_or_replace(engine) for engine in self.engines))
        await self._admit()

    async def _update_or_replace(self, engine: Engine) -> None:
        try:
            await self._load_current(engine)
        except ControlError as error:  # what a failed reload leaves behind in vLLM cannot be told from outside
            await self._replace(engine, str(error))

    async def _load_current(self, engine: Engine) -> None:
        """Bring an engine to the fleet's weights and version, from wherever it is."""
        engine.settled = False
        if self._synced:
            await engine.client.load(self._folder, self.version)
        else:
            await engine.client.name_weights(self.version)
        engine.settled = True

    # --- staying alive ----------------------------------------------------------------------------------------------

    @property
    def out_of_service(self) -> bool:
        """Whether the router or every engine has ended. A cheap look: only ``ensure_alive`` finds what hangs."""
        return self._router.exit_code is not None or all(e.process.exit_code is not None for e in self.engines)

    async def ensure_alive(self, hung_after_s: float = HUNG_TIMEOUT_S) -> int:
        """Replace dead or hung engines and a dead router; returns how many processes were replaced.

        ``hung_after_s`` is for idle engines; while requests are in flight, give what a request may take.
        """
        before = self.restarts
        async with self._busy:
            await gather_or_cancel(*(self._check_engine(engine, hung_after_s) for engine in self.engines))
            await self._admit()
        return self.restarts - before

    async def _check_engine(self, engine: Engine, hung_after_s: float) -> None:
        with contextlib.suppress(ControlError):
            if engine.process.exit_code is None and engine.settled:
                if await engine.client.weight_info(hung_after_s) == self.version:
                    return
        await self._replace(engine, "it does not answer /weight_info with the current version")

    async def _replace(self, engine: Engine, cause: str) -> None:
        """A new process with the current weights in ``engine``'s place; the router learns of it in ``_admit``."""
        self._count_restart(engine.process, cause)
        if await self._router_client.answers("/liveness"):
            await self._tell_router("remove_worker", engine.client.url)
        self._end(engine.process, REPLACE_GRACE_S)
        fresh = self.engines[engine.index] = await self._start_engine(engine.index)
        await self._load_current(fresh)

    def _count_restart(self, process: ChildProcess, cause: str) -> None:
        self.restarts += 1
        line, number = f"{process.describe()} [{cause}]", self.restarts - self._restarts_at_sync
        if number > MOST_RESTARTS:
            raise FleetError(f"{MOST_RESTARTS} servers were replaced with these weights, and one more ended: {line}")
        log.warning("restart %d of at most %d: %s", number, MOST_RESTARTS, line)

    async def _admit(self) -> None:
        """Make the router's workers exactly the fleet's engines, all of which have confirmed the version; a dead or
        hung router is replaced first."""
        if self._router.exit_code is not None or not await self._router_client.answers("/liveness"):
            self._count_restart(self._router, "it does not answer /liveness")
            self._end(self._router, 0.0)
            await self._start_router()  # it knows no engines
        known = set((await self._router_client.call("GET", "/list_workers"))["urls"])
        wanted = {engine.client.url for engine in self.engines}
        await gather_or_cancel(*(self._tell_router("remove_worker", url) for url in known - wanted))
        await gather_or_cancel(*(self._tell_router("add_worker", url) for url in wanted - known))

    # --- processes --------------------------------------------------------------------------------------------------

    async def _tell_router(self, call: str, engine_url: str) -> None:
        """``add_worker`` returns once the router has seen it healthy; ``remove_worker`` of an unknown one is fine."""
        await self._router_client.call("POST", f"/{call}?url={engine_url}", timeout_s=ADMIT_TIMEOUT_S + 10)

    def _new_port(self) -> int:
        [port] = free_ports(1, avoid=self._used)
        self._used.append(port)
        return port

    async def _start_engine(self, index: int) -> Engine:
        port = self._new_port()
        command = servers.engine_command(self.config, self.model, port, self.device, index)
        environment = servers.engine_environment(os.environ, self.device, index)
        process = self._launch(f"engine-{index}", command, environment)
        client = EngineClient(f"http://127.0.0.1:{port}", self._session)
        try:
            await wait_until_healthy(process, partial(client.answers, "/health"), START_TIMEOUT_S)
            # A server can be healthy and die of its first request, as of a head size that its kernels lack.
            await client.try_out(START_TIMEOUT_S)
        except ControlError as error:
            raise ProcessError(f"{process.describe()} (its first request failed: {error})") from error
        return Engine(index, process, client)

    async def _start_router(self) -> None:
        command = servers.router_command(self.port, self._new_port())
        self._router = self._launch("router", command, servers.router_environment(os.environ))
        await wait_until_healthy(self._router, partial(self._router_client.answers, "/liveness"), START_TIMEOUT_S)

    def _launch(self, name: str, command: list[str], env: dict[str, str]) -> ChildProcess:
        self._sockets.mkdir(exist_ok=True)
        env = env | {"VLLM_RPC_BASE_PATH": str(self._sockets)}
        process = ChildProcess(name, command, env, self.logs / f"{name}.log", cleanup=[self._folder, self._sockets])
        self._processes.append(process)
        return process

    def _end(self, process: ChildProcess, grace_s: float) -> None:
        process.stop(grace_s)
        self._processes = [one for one in self._processes if one is not process]


# --- weights on disk -----------------------------------------------------------------------------------------------


def write_weights(tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Replace ``folder/model.safetensors``; readers of the old file keep it. On DiskFull the old file stays.

    Tensors that share memory, which the format cannot say, are an error: pass copies.
    """
    folder.mkdir(exist_ok=True)
    draft = folder / "draft.tmp"
    save_weights({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, draft)
    draft.replace(folder / "model.safetensors")


# --- command line ---------------------------------------------------------------------------------------------------


@one_line_errors("nothing is left running", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent serve-engines", description="Serve a model for rollouts.")
    parser.add_argument("--model", required=True, help="Hugging Face folder of the model")
    parser.add_argument("--port", type=whole_number, default=0, help="the router's; 0: a free one (default)")
    options = parser.parse_args(argv)
    log_to_terminal(logging.INFO)
    model, config = model_to_ask(options.model, "--model", base_url="")
    try:
        run_stoppable(_serve(Fleet(config, model, port=options.port)))
    except KeyboardInterrupt:
        return 0  # it serves until it is told to stop


async def _serve(fleet: Fleet) -> NoReturn:
    """Run until cancelled."""
    async with fleet:
        print(f"READY {fleet.url}", flush=True)
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            await fleet.ensure_alive(servers.REQUEST_TIMEOUT_S)

