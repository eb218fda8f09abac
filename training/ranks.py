"""The processes of one trainer: how many, how they are started, how they meet.

TRAIN_PROCS > 1, given or found: this process becomes rank 0 and starts the other ranks as guarded children. They run
the same command with ``RANK`` set, log into ``SAVE_PATH/logs/trainer-<rank>.log``, and end with this process, however
it ends. If one of them dies, the error of rank 0 is replaced by the line that names it: rank 0 sees a connection close
at once, and who closed it a moment later. They meet in a file in shared memory, which has the locks that torch's store
needs, and talk over loopback.

Ranks of one tensor-parallel group are neighbours: with TP=2 and four processes, ranks 0 and 1 hold the two halves of
one copy of the model and train the same rows, ranks 2 and 3 the other copy.

``torch.distributed.run --standalone`` is no replacement (torch 2.13): whatever exit code a rank ends with, it ends
with 1 and a 40-line report, which hides code 130 and the line with the reason. Killed by SIGKILL, it leaves its ranks
running.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist

from ..checkpoints.hf_model import model_config, parameter_count
from ..config import Config
from ..system.cli import python_module, share_cores
from ..system.files import SHARED_MEMORY, scratch_folder
from ..system.processes import ChildProcess, ProcessError

MEETING = "MEM_AGENT_RANKS_MEET_IN"
"""Variable: the file in which the ranks find each other."""
DEATH_SEEN_S = 10.0
"""A connection closes at once; who closed it is known when its guard has ended, within a second or a grace period."""
WAITS = timedelta(days=1)
"""Trainers wait in a collective while rank 0 samples, which may take hours; a dead rank is noticed anyway."""
WORTH_A_PROCESS = 50_000_000
"""From this many parameters on, a second copy pays off."""
BYTES_PER_PARAMETER = 24
"""Of a copy: weights, gradient, its sum, two moments and the reference model, in fp32."""


# --- how many -------------------------------------------------------------------------------------------------------


def with_train_procs(config: Config, model: Path) -> Config:
    """The config with TRAIN_PROCS settled for the model in the folder ``model``.

    TRAIN_PROCS=0 becomes two copies of a large model, on CPUs with cores for both, in half of the memory (the other
    half is that of engines and activations), and one copy otherwise. A second copy of a small model costs its start
    and saves less; a large one keeps every core busy in its matrix products, and processes do that better than
    OpenMP's threads, which wait for each other at every operation. More than two were not measured.
    """
    if config.train_procs:
        return config
    parameters, cores = parameter_count(model_config(model)), len(os.sched_getaffinity(0))
    two_fit = 2 * 2 * BYTES_PER_PARAMETER * parameters <= psutil.virtual_memory().total
    pays = parameters >= WORTH_A_PROCESS and cores >= 2 * (config.tp or 1) and not torch.cuda.is_available()
    copies = 2 if pays and two_fit and config.step_trajectories > 1 else 1
    return config.replace(train_procs=copies * (config.tp or 1))


# --- how they are started -------------------------------------------------------------------------------------------


def is_rank_zero() -> bool:
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def other_ranks(config: Config, arguments: Sequence[str]) -> Iterator[None]:
    """Ranks 1 to TRAIN_PROCS - 1 with these command line arguments, for as long as the block lasts.

    Each has its part of the cores. No others are started by one process alone, or in a rank.
    """
    share_cores(config.train_procs)
    if config.train_procs == 1 or "RANK" in os.environ:
        yield
        return
    with scratch_folder("mem_agent-ranks-", SHARED_MEMORY) as folder:
        meeting = {MEETING: str(folder / "store"), "WORLD_SIZE": str(config.train_procs), "RANK": "0"}
        os.environ.update(meeting)
        command, logs = python_module("mem_agent", "train", *arguments), Path(config.save_path) / "logs"
        children = []
        for rank in range(1, config.train_procs):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TRAIN_PROCS": str(config.train_procs)}  # 0: found once
            log = logs / f"trainer-{rank}.log"
            children.append(ChildProcess(log.stem, command, {**os.environ, **own}, log))
        try:
            yield
        except Exception as error:
            if any(isinstance(one, RuntimeError) for one in (error, error.__cause__)):  # of a collective
                time.sleep(DEATH_SEEN_S)
            for child in children:
                if child.exit_code:
                    raise ProcessError(child.describe()) from error
            raise
        finally:
            for child in children:
                child.stop()
            for name in meeting:
                del os.environ[name]


# --- how they meet --------------------------------------------------------------------------------------------------


def join(tp: int) -> None:
    """Join the process group and megatron-core's parallel state; does nothing if both stand already."""
    from megatron.core import parallel_state  # these imports take seconds

    if not dist.is_initialized():
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")  # gloo listens on the address of the machine's name otherwise
        meeting = os.environ.get(MEETING)
        rank, ranks = (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if meeting else (0, 1)
        store = dist.FileStore(meeting, ranks) if meeting else dist.HashStore()
        dist.init_process_group(backend, timeout=WAITS, store=store, rank=rank, world_size=ranks)
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=tp, distributed_timeout_minutes=WAITS // timedelta(minutes=1))


def broadcast(value: Any) -> Any:
    """Rank 0's value on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def leave() -> None:
    """Leave both; a later ``join`` may choose another TP. A process that ends while gloo's threads run may abort."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
