"""The process group of the trainer: one process alone, or the ranks of ``ranks.py``; data parallel x tensor parallel.

Ranks meet in a file, and gloo and NCCL connect them over ``lo``. Ranks that torchrun has started meet where they were
told to.

Ranks of one tensor-parallel group are neighbours: with TP=2 and four processes, ranks 0 and 1 hold the two halves of
one copy of the model and train the same rows, ranks 2 and 3 the other copy.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from .ranks import MEETING

# Trainers wait in a collective while rank 0 samples a rollout, which may take hours; a dead rank is noticed anyway.
PATIENCE = timedelta(days=1)


def start(tp: int) -> None:
    """Join the process group and megatron-core's parallel state; does nothing if both stand already."""
    if not dist.is_initialized():
        on_gpu = torch.cuda.is_available()
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        is_rank = {"RANK", "WORLD_SIZE"} <= os.environ.keys()
        if on_gpu and is_rank:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if is_rank and MEETING not in os.environ:
            dist.init_process_group(backend, timeout=PATIENCE)
        else:
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, "lo")  # gloo listens on the address of the machine's name otherwise
            store, rank, ranks = _meeting()
            dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=PATIENCE)
    if not parallel_state.is_initialized():
        if dist.get_world_size() % tp:
            raise ValueError(f"TP={tp} does not divide the {dist.get_world_size()} trainer processes")
        minutes = int(PATIENCE.total_seconds() // 60)
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp, distributed_timeout_minutes=minutes)
    standing = parallel_state.get_tensor_model_parallel_world_size()
    assert standing == tp, f"this process already runs with TP={standing}, not {tp}"


def _meeting() -> tuple[dist.Store, int, int]:
    """Where to meet, as which rank, and how many there are."""
    if MEETING not in os.environ:
        return dist.HashStore(), 0, 1
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ[MEETING], ranks)
    store.set_timeout(PATIENCE)
    return store, rank, ranks


def stop() -> None:
    """Leave both; a later ``start`` may choose another TP."""
    if parallel_state.is_initialized():
        parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()
