"""The rollout side of a run: engines behind one router, kept alive, always serving the weights they claim to serve.

::

    async with Fleet(config, model_folder) as fleet:
        await fleet.sync_weights(policy.state_dict(), version="1")
        await fleet.ensure_alive()              # before each rollout, and after one that lost trajectories
        ...                                     # generate at fleet.url

Invariants:

- Between syncs the router only knows engines that confirmed the fleet's current version.
- Weights change on a paused engine, and it only resumes after reload, confirmed version and empty prefix cache. An
  engine that cannot get there is replaced, never resumed.
- An engine has answered a request before anybody relies on it: what it dies of is the error of its start.
- A replaced engine has a new port and the current weights before the router hears of it.
- ``stop`` ends every process that this fleet started, and no other; it is not interrupted by cancellation.

Methods are for one asyncio loop; ``sync_weights`` and ``ensure_alive`` exclude each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import aiohttp
import torch

from ..config import Config, ConfigError
from ..system.files import scratch_folder
from ..system.gather import gather_or_cancel
from ..system.ports import free_ports, is_free
from ..system.processes import (
    TERM_GRACE_S,
    ChildProcess,
    FleetError,
    ProcessError,
    wait_until_healthy,
)
from . import engine as engines
from . import router as routers
from .engine import HUNG_TIMEOUT_S, Device, EngineClient, EngineError
from .engine_key import VARIABLE as KEY_VARIABLE
from .engine_key import new_key
from .router import REQUEST_TIMEOUT_S, RouterAdmin
from .sync_folder import SyncFolder, checkpoint_names, sync_folder

log = logging.getLogger(__name__)

LONGEST_TMPDIR = 42
"""Bytes: the path of a socket has 107 at most, of which the folder of a fleet and vLLM's name for it take 65."""
REPLACE_GRACE_S = 3.0
START_TIMEOUT_S = 600.0
MOST_RESTARTS = 3
"""Servers that are replaced between two weight syncs: a run that goes on may lose one now and then."""


@dataclass
class _Engine:
    index: int
    process: ChildProcess
    client: EngineClient
    settled: bool = False  # serving, not somewhere inside a weight update


class Fleet:
    """Starts and owns ``config.num_engines`` engines and a router; use as an async context manager."""

    def __init__(
        self,
        config: Config,
        model: str | Path,
        *,
        run_folder: str | Path | None = None,
        port: int = 0,
    ) -> None:
        self.config = config
        self.model = Path(model).resolve()
        self.logs = Path(run_folder or config.save_path).resolve() / "logs"
        self.port = port
        """0 until ``start`` has chosen one."""
        self._metrics_port = 0
        self._used: set[int] = set()
        """Ports that servers of this fleet have or had: the router must not mistake a new server for an old one."""
        self.version = "0"
        """The weight version that every engine has confirmed, or is about to while a sync runs."""
        self.restarts = 0
        self._restarts_at_sync = 0
        self.device: Device = "cuda" if torch.cuda.is_available() else "cpu"
        self._names = checkpoint_names(self.model)
        self._folder: SyncFolder | None = None
        self._sockets: Path | None = None
        self._folders = contextlib.ExitStack()
        self._engines: list[_Engine] = []
        self._router: ChildProcess | None = None
        self._processes: list[ChildProcess] = []
        self._session: aiohttp.ClientSession | None = None
        self._busy = asyncio.Lock()

    @property
    def url(self) -> str:
        """Where to send generation requests."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def engine_urls(self) -> list[str]:
        return [client.url for client in self.engine_clients]

    @property
    def engine_clients(self) -> list[EngineClient]:
        """For control calls: nobody else has their keys."""
        return [e.client for e in self._engines]

    @property
    def engine_pids(self) -> list[int]:
        return [e.process.pid for e in self._engines]

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
        assert self._session is None, "a fleet starts once"
        began = time.monotonic()
        self._choose_router_ports()
        # A new connection per control call: a kept one may have been closed by the server since the last sync.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        self._folder = self._folders.enter_context(sync_folder(self.model, fallback=self.logs.parent))
        named = tempfile.gettempdir()
        parent = named if len(os.fsencode(named)) <= LONGEST_TMPDIR else "/tmp"
        self._sockets = self._folders.enter_context(scratch_folder("mem_agent-tmp-", Path(parent)))
        _, *self._engines = await gather_or_cancel(
            self._start_router(), *(self._start_engine(i) for i in range(self.config.num_engines))
        )
        await gather_or_cancel(*(self._load_current(e) for e in self._engines))
        await self._admit()
        log.info("%d engine(s) behind %s after %.1f s", len(self._engines), self.url, time.monotonic() - began)

    async def stop(self) -> None:
        """End everything this fleet started. The part that ends processes does not await, so it always completes."""
        if self._router is not None:
            self._end(self._router, 0.0)  # at once: its open requests would keep it and the engines waiting
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + TERM_GRACE_S
        for process in self._processes:
            self._end(process, deadline - time.monotonic())
        self._engines, self._router = [], None
        self._folders.close()
        if self._session is not None:
            await self._session.close()

    # --- weights ----------------------------------------------------------------------------------------------------

    async def sync_weights(
        self, tensors: Mapping[str, torch.Tensor], version: str, mode: Literal["abort", "wait"] = "abort"
    ) -> float:
        """Give every engine these weights under this version; returns the seconds it took.

        ``tensors`` has the checkpoint's names, all of them: vLLM would silently keep old values for missing ones.
        """
        assert self._folder is not None, "the fleet is not started"
        if missing := sorted(self._names - set(tensors)):
            raise FleetError(f"weight sync {version}: {len(missing)} tensors of {self.model} are missing, e.g. "
                             f"{missing[0]}; pass the whole state under checkpoint names")
        began = time.monotonic()
        async with self._busy:
            await asyncio.to_thread(self._folder.write, tensors)
            self.version = version
            await self._update_all(mode)
            self._restarts_at_sync = self.restarts
        return time.monotonic() - began

    async def start_over(self) -> None:
        """Every engine as right after the last sync: nothing in flight, nothing cached."""
        async with self._busy:
            await self._update_all("abort")

    async def _update_all(self, mode: Literal["abort", "wait"]) -> None:
        await gather_or_cancel(*(self._update_or_replace(e, mode) for e in self._engines))
        await self._check_router()
        await self._admit()

    async def _update_or_replace(self, engine: _Engine, mode: Literal["abort", "wait"]) -> None:
        for attempt in (1, 2):  # no more: what a failed reload leaves behind in vLLM cannot be told from outside
            try:
                return await self._update(engine, mode)
            except EngineError as error:
                log.warning("weight sync %s, attempt %d: %s", self.version, attempt, error)
                cause = str(error)
            if not await engine.client.healthy(HUNG_TIMEOUT_S):
                break
        await self._replace(engine, cause)

    async def _load_current(self, engine: _Engine) -> None:
        """Bring an engine that just started to the fleet's weights and version."""
        assert self._folder is not None
        if self._folder.written:
            return await self._update(engine, "abort")
        await engine.client.name_weights(self.version)
        engine.settled = True

    async def _update(self, engine: _Engine, mode: Literal["abort", "wait"]) -> None:
        assert self._folder is not None
        engine.settled = False
        self._folder.check()
        await engine.client.load(self._folder.path, self.version, mode, REQUEST_TIMEOUT_S)
        engine.settled = True

    # --- staying alive ----------------------------------------------------------------------------------------------

    @property
    def out_of_service(self) -> bool:
        """Whether the router or every engine has ended. A cheap look: only ``ensure_alive`` finds what hangs."""
        assert self._router is not None, "the fleet is not started"
        return self._router.exit_code is not None or all(e.process.exit_code is not None for e in self._engines)

    async def ensure_alive(self, hung_after_s: float = HUNG_TIMEOUT_S) -> int:
        """Replace dead or hung engines and a dead router; returns how many processes were replaced.

        ``hung_after_s`` is for idle engines; while requests are in flight, give what a request may take.
        """
        assert self._router is not None, "the fleet is not started"
        before = self.restarts
        async with self._busy:
            await self._check_router()
            await gather_or_cancel(*(self._check_engine(e, hung_after_s) for e in self._engines))
            await self._check_router()  # engines that hang took minutes
            await self._admit()
        return self.restarts - before

    async def _check_engine(self, engine: _Engine, hung_after_s: float) -> None:
        if not (await self._serves_current(engine, hung_after_s) or await self._serves_current(engine, hung_after_s)):
            await self._replace(engine, "it does not answer /health and /weight_info with the current version")

    async def _serves_current(self, engine: _Engine, hung_after_s: float) -> bool:
        if engine.process.exit_code is not None or not engine.settled:
            return False
        try:
            healthy = await engine.client.healthy(hung_after_s)
            return healthy and await engine.client.weight_info(hung_after_s) == self.version
        except EngineError:
            return False

    async def _replace(self, engine: _Engine, cause: str) -> None:
        """A new process with the current weights in ``engine``'s place; the router learns of it in ``_admit``."""
        self._count_restart(engine.process, cause)
        if await self._router_client.alive():
            await self._router_client.remove_worker(engine.client.url)
        self._end(engine.process, REPLACE_GRACE_S)
        fresh = await self._start_engine(engine.index)
        engine.process, engine.client, engine.settled = fresh.process, fresh.client, False
        await self._load_current(engine)

    async def _check_router(self) -> None:
        assert self._router is not None
        for _ in range(2):
            if self._router.exit_code is None and await self._router_client.alive():
                return
        self._count_restart(self._router, "it does not answer /liveness")
        self._end(self._router, 0.0)
        await self._start_router()  # it knows no engines

    def _count_restart(self, process: ChildProcess, cause: str) -> None:
        self.restarts += 1
        line, number = f"{process.describe()} [{cause}]", self.restarts - self._restarts_at_sync
        if number > MOST_RESTARTS:
            raise FleetError(f"{MOST_RESTARTS} servers were replaced with these weights, and one more ended: {line}")
        log.warning("restart %d of at most %d: %s", number, MOST_RESTARTS, line)

    async def _admit(self) -> None:
        """Make the router's workers exactly the fleet's engines, all of which have confirmed the version."""
        known, wanted = set(await self._router_client.workers()), set(self.engine_urls)
        await gather_or_cancel(*(self._router_client.remove_worker(u) for u in known - wanted))
        await gather_or_cancel(*(self._router_client.add_worker(u) for u in wanted - known))

    # --- processes --------------------------------------------------------------------------------------------------

    @property
    def _router_client(self) -> RouterAdmin:
        assert self._session is not None, "the fleet is not started"
        return RouterAdmin(self.url, self._session)

    def _choose_router_ports(self) -> None:
        if self.port:
            try:
                free = is_free(self.port)
            except PermissionError as error:  # below 1024 it is for root
                raise ConfigError(f"port {self.port} on 127.0.0.1: {error.strerror}; choose another one") from None
            if not free:  # answers from there would be taken for our router's
                raise ConfigError(f"port {self.port} on 127.0.0.1 is in use; choose another one or none")
            self._used.add(self.port)
        self.port = self.port or self._new_port()
        self._metrics_port = self._new_port()

    def _new_port(self) -> int:
        [port] = free_ports(1, avoid=self._used)
        self._used.add(port)
        return port

    async def _start_engine(self, index: int) -> _Engine:
        assert self._session is not None
        port, key = self._new_port(), new_key()
        command = engines.engine_command(self.config, self.model, port, self.device, index)
        environment = engines.engine_environment(os.environ, self.device, index) | {KEY_VARIABLE: key}
        process = self._launch(f"engine-{index}", command, environment)
        client = EngineClient(f"http://127.0.0.1:{port}", self._session, key)
        try:
            await wait_until_healthy(process, client.healthy, START_TIMEOUT_S)
            # A server can be healthy and die of its first request, as of a head size that its kernels lack.
            await client.try_out(START_TIMEOUT_S)
        except BaseException as error:
            said = f"{process.describe()} (its first request failed: {error})"
            self._end(process, 0.0)
            if isinstance(error, EngineError):
                raise ProcessError(said) from error
            raise
        return _Engine(index, process, client)

    async def _start_router(self) -> None:
        command = routers.router_command(self.port, self._metrics_port)
        self._router = self._launch("router", command, routers.router_environment(os.environ))
        await wait_until_healthy(self._router, self._router_client.alive, START_TIMEOUT_S)

    def _launch(self, name: str, command: list[str], env: dict[str, str]) -> ChildProcess:
        assert self._folder is not None and self._sockets is not None
        self._sockets.mkdir(exist_ok=True)  # TMPDIR is tidied where runs take days
        own = [self._folder.path, self._sockets]
        env = env | {"VLLM_RPC_BASE_PATH": str(self._sockets)}
        process = ChildProcess(name, command, env, self.logs / f"{name}.log", cleanup=own)
        self._processes.append(process)
        return process

    def _end(self, process: ChildProcess, grace_s: float) -> None:
        process.stop(grace_s)
        self._processes = [p for p in self._processes if p is not process]
