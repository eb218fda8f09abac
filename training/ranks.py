"""TRAIN_PROCS > 1, given or found: this process becomes rank 0 and starts the other ranks as guarded children.

The children run the same command with ``RANK`` set, log into ``<save>/logs/trainer-<rank>.log``, and end with this
process, however it ends. If one of them dies, the error of rank 0 is replaced by the line that names it: rank 0 sees
a connection close at once, and who closed it a moment later.

They meet in a file (``process_group.py``) in shared memory, which has the locks that torch's store needs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..config import Config
from ..serving.sync_folder import SHARED_MEMORY
from ..system.files import scratch_folder
from ..system.processes import ChildProcess, ProcessError
from ..system.python_command import python_module

MEETING = "MEM_AGENT_RANKS_MEET_IN"
"""Variable: the file in which the ranks find each other."""

DEATH_SEEN_S = 10.0
"""A guard sees its process die within a second or a grace period."""


def is_rank_zero() -> bool:
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def other_ranks(config: Config, arguments: Sequence[str]) -> Iterator[None]:
    """Ranks 1 to TRAIN_PROCS - 1 with these command line arguments, for as long as the block lasts.

    Nothing to do for one process or in a rank.
    """
    if config.train_procs == 1 or "RANK" in os.environ:
        yield
        return
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with scratch_folder("mem_agent-ranks-", place) as folder:
        meeting = {MEETING: str(folder / "store"), "WORLD_SIZE": str(config.train_procs)}
        children = [_start(rank, config, arguments, meeting) for rank in range(1, config.train_procs)]
        # ``process_group.start`` reads its meeting point from the environment.
        os.environ.update(meeting | {"RANK": "0", "LOCAL_RANK": "0"})
        try:
            yield
        except Exception as error:
            collective = any(isinstance(one, RuntimeError) for one in (error, error.__cause__))
            dead = _dead(children, DEATH_SEEN_S if collective else 0.0)
            if dead is not None:
                raise ProcessError(dead.describe()) from error
            raise
        finally:
            for child in children:
                child.stop()
            for name in (*meeting, "RANK", "LOCAL_RANK"):
                os.environ.pop(name, None)


def _dead(children: Sequence[ChildProcess], patience_s: float) -> ChildProcess | None:
    """A child that failed; one that may be dying is waited for."""
    deadline = time.monotonic() + patience_s
    while True:
        dead = next((child for child in children if child.exit_code not in (None, 0)), None)
        if dead is not None or time.monotonic() >= deadline:
            return dead
        time.sleep(0.05)


def _start(rank: int, config: Config, arguments: Sequence[str], meeting: dict[str, str]) -> ChildProcess:
    env = {**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    env["TRAIN_PROCS"] = str(config.train_procs)  # 0 is found once
    command = python_module("mem_agent.training.train", *arguments)
    log = Path(config.save_path) / "logs" / f"trainer-{rank}.log"
    return ChildProcess(f"trainer-{rank}", command, env, log)
