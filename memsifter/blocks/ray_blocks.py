"""Blocks on Ray Data: a data set of block numbers, mapped by actors that read, work and write as one process would.

Only numbers and names travel. Rows and parts are read and written by the actors, in folders that they all see.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...system.errors import ConfigError, MemAgentError
from .block_run import BlockRun, Done, OnRay
from .block_work import BlockWork
from .worker import Worker

_PACKAGE = Path(__file__).parents[2]
_MOST_TASKS = 1_000


class RayFailed(MemAgentError):
    """A worker, or Ray itself, failed; finished blocks stay."""


class _Actor:
    """Rows ``{"id": block number}`` to what was done, or why not."""

    def __init__(self, run: BlockRun, make_worker: Callable[[], Worker]) -> None:
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
    with _connected(where) as data:
        numbers = data.range(run.blocks, override_num_blocks=min(run.blocks, _MOST_TASKS))
        found = numbers.map(
            _Actor, fn_constructor_args=(run, make_worker),
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
def _connected(where: OnRay) -> Iterator[Any]:
    """``ray.data``, with a Ray of this machine started for the block, or a running one joined."""
    try:
        import ray
        import ray.data
        import ray.data.exceptions
    except ImportError:
        raise ConfigError("no Ray is installed; pip install 'ray[data]', or leave the address out") from None
    if where.address.startswith(("http://", "https://")):
        raise ConfigError(f"RAY_ADDRESS={where.address}: is a job server's; workers join a cluster by auto, HEAD:6379 "
                          "or ray://HEAD:10001")
    started = not ray.is_initialized()
    if started:
        path = ":".join(dict.fromkeys([str(_PACKAGE), *filter(None, sys.path)]))
        options: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": path}}}
        if where.address == "local":
            options |= {"num_cpus": max(1, round(where.workers * where.cpus)), "include_dashboard": False}
        try:
            ray.init(address=where.address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:160]
            raise ConfigError(f"RAY_ADDRESS={where.address}: no Ray answers there ({reason})") from None
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        for name in ("ray.data", "ray.util"):
            logging.getLogger(name).setLevel(logging.ERROR)
        yield ray.data
    finally:
        if started:
            ray.shutdown()
