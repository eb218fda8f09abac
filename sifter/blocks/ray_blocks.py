"""Blocks on Ray Data: a data set of block numbers, mapped by actors that read, work and write as one process would.

Only numbers and names travel. Rows and parts are read and written by the actors, in folders that they all see.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...system.errors import ConfigError, MemAgentError
from .block_run import BlockRun, Done, OnRay
from .block_work import BlockWork
from .own_ray import own_ray, take_keys
from .worker import Worker

_PACKAGE = Path(__file__).parents[2]
_MOST_TASKS = 1_000


class RayFailed(MemAgentError):
    """A worker, or Ray itself, failed; finished blocks stay."""


class _Actor:
    """Rows ``{"id": block number}`` to what was done, or why not."""

    def __init__(self, run: BlockRun, make_worker: Callable[[], Worker], keys: Path | None) -> None:
        """``keys``: the file that holds those of the worker; None where its environment does."""
        if keys is not None:
            take_keys(keys)
        self._work = BlockWork(run, make_worker)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            return {**asdict(self._work.do(int(row["id"]))), "error": ""}
        except MemAgentError as error:
            return {"number": int(row["id"]), "name": "", "rows": 0, "computed": False, "error": str(error)}


def done_on_ray(run: BlockRun, make_worker: Callable[[], Worker], where: OnRay) -> Iterator[Done]:
    """Blocks as they are done, in any order.

    Raises:
        ConfigError: there is no Ray, or not at this address.
        RayFailed: a worker raised a MemAgentError, or Ray failed.
    """
    if not run.blocks:
        return
    with _connected(where) as (data, keys):
        numbers = data.range(run.blocks, override_num_blocks=min(run.blocks, _MOST_TASKS))
        found = numbers.map(
            _Actor, fn_constructor_args=(run, make_worker, keys),
            compute=data.ActorPoolStrategy(size=where.workers), num_cpus=where.cpus, num_gpus=where.gpus or None,
        )
        try:
            for row in found.iter_rows():
                if row["error"]:
                    raise RayFailed(row["error"])
                yield Done(int(row["number"]), str(row["name"]), int(row["rows"]), bool(row["computed"]))
        except data.exceptions.RayDataUserCodeException as error:
            raise RayFailed(f"a worker failed: {' '.join(str(error.__cause__ or error).split())[-400:]}") from error


@contextmanager
def _connected(where: OnRay) -> Iterator[tuple[Any, Path | None]]:
    """``ray.data``, with a Ray of this machine started for the block, or a running one joined; the workers' keys."""
    try:
        import ray
        import ray.data
        import ray.data.exceptions
    except ImportError:
        raise ConfigError("no Ray is installed; pip install 'ray[data]', or leave the address out") from None
    if where.address.startswith(("http://", "https://")):
        raise ConfigError(f"RAY_ADDRESS={where.address}: is a job server's; workers join a cluster by auto, HEAD:6379 "
                          "or ray://HEAD:10001")
    with ExitStack() as stack:
        keys = None if ray.is_initialized() else _start(ray, where, stack)
        ray.data.DataContext.get_current().enable_progress_bars = False
        for name in ("ray.data", "ray.util"):
            logging.getLogger(name).setLevel(logging.ERROR)
        yield ray.data, keys


def _start(ray: Any, where: OnRay, stack: ExitStack) -> Path | None:
    """The file with the workers' keys, in a Ray that inherits none; it ends with ``stack``."""
    environment = {"env_vars": {"PYTHONPATH": ":".join(dict.fromkeys([str(_PACKAGE), *filter(None, sys.path)]))}}
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "runtime_env": environment}
    if where.address == "local" and " " in sys.executable:
        raise ConfigError(f"{sys.executable}: Ray starts no workers from a path with a blank; set VENV to another "
                          "folder, or leave RAY_ADDRESS and --ray out")
    try:
        if where.address == "local":
            cpus = max(1, round(where.workers * where.cpus))
            return stack.enter_context(own_ray(ray, where.keys, num_cpus=cpus, **options))
        ray.init(address=where.address, **options)
    except ConfigError:  # a ValueError, and a line already
        raise
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ConfigError(f"RAY_ADDRESS={where.address}: no Ray answers there ({reason})") from None
    stack.callback(ray.shutdown)
    return None
