"""Saving and resuming: torch_dist checkpoints in the layout of slime and vime.

::

    SAVE_PATH/latest_checkpointed_iteration.txt      "99", written last
    SAVE_PATH/iter_0000099/{.metadata, __0_0.distcp, ..., common.pt, metadata.json}

A checkpoint is written into a hidden sibling folder and renamed when complete, so an ``iter_*`` folder is never half
written and the tracker never names one that is. Tensors carry Megatron's names without prefix and load under any
other TP or number of processes; ``common.pt`` holds what is not a tensor, ``args`` among it, which the hosts'
converters read.

``save``, ``load`` and ``load_weights`` are collective: every rank calls them with the same arguments.
"""

from __future__ import annotations

import argparse
import pickle
import queue
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.models.gpt.gpt_model import GPTModel
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from ..system.atomic_file import write_atomically
from ..system.errors import MemAgentError
from . import megatron_cpu
from .bridge import LocalBridge, expected_tensors
from .torch_dist import PADDED, ModelTensors, misfit, stored_name

if TYPE_CHECKING:
    from ..training.trainer import Trainer

TRACKER = "latest_checkpointed_iteration.txt"


class CheckpointError(MemAgentError):
    """A checkpoint could not be written or read: the message names the path, the cause and the remedy."""


# --- finding ---------------------------------------------------------------------------------------------------------


def latest(save_path: str | Path) -> Path | None:
    """The folder that the tracker of ``save_path`` names (``iter_*`` or ``release``), or None without a tracker."""
    tracker = Path(save_path) / TRACKER
    if not tracker.exists():
        return None
    text = tracker.read_text().strip()
    if text != "release" and not text.isdigit():
        raise CheckpointError(f"{tracker} holds {text!r}; expected the number of a checkpoint, such as 99")
    folder = Path(save_path) / ("release" if text == "release" else f"iter_{int(text):07d}")
    if not (folder / ".metadata").exists():
        raise CheckpointError(f"{tracker} names {folder.name}, which is not a checkpoint; write a good number into it")
    return folder


def resolve(path: str | Path) -> Path:
    """The checkpoint folder meant by ``path``: itself, or the latest one inside it."""
    folder = Path(path) if (Path(path) / ".metadata").exists() else latest(path)
    if folder is None:
        others = ", ".join(sorted(f.name for f in Path(path).parent.glob("iter_*")))
        there = f"; there are {others}" if others else f"; expected an iter_* folder or {TRACKER} in it"
        raise CheckpointError(f"{path}: no torch_dist checkpoint{there}")
    return folder


def prune(save_path: str | Path, keep: int) -> None:
    """Delete all but the ``keep`` newest checkpoints (0 keeps all), never the latest, and leftovers of a crash."""
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    for leftover in Path(save_path).glob(".iter_*"):
        shutil.rmtree(leftover)
    folders = sorted(f for f in Path(save_path).glob("iter_*") if re.fullmatch(r"iter_\d{7,}", f.name))
    for folder in folders[:-keep] if keep else []:
        if folder != latest(save_path):
            shutil.rmtree(folder)


# --- saving ----------------------------------------------------------------------------------------------------------


def save(save_path: str | Path, iteration: int, trainer: Trainer, host_state: dict[str, Any]) -> Path:
    """Write ``iter_<iteration>`` and make it the latest; ``host_state`` is any JSON-able dict, given back by load."""
    final = Path(save_path) / f"iter_{iteration:07d}"
    temporary = final.with_name(f".{final.name}.writing")
    try:
        _on_first_rank(lambda: _empty_folder(temporary))
        # One process writes and collects its own results: no need for mcore's queue in a spawned process, which
        # would run the caller's main module again.
        filesystem_async._results_queue = queue.Queue()
        state = _sharded_state(trainer) | _common_state(trainer, iteration, host_state)
        with megatron_cpu.device_mode():
            dist_checkpointing.save(
                state,
                str(temporary),
                ("torch_dist", 1),
                preprocess_common_before_consistancy_check=lambda common: {"iteration": common["iteration"]},
            )
        _on_first_rank(lambda: _publish(temporary, final))
    # Writing fails in many types, and torch's CheckpointException is not an Exception.
    except (Exception, CheckpointException) as error:
        if dist.get_rank() == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        good = latest(save_path)
        raise CheckpointError(
            f"{final}: checkpoint not written: {_cause(error)}; free disk space or set another SAVE_PATH, "
            "then resume; "
            + (f"the last good checkpoint {good} is intact" if good else "there is no earlier checkpoint")
        ) from error
    return final


def _empty_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _publish(temporary: Path, final: Path) -> None:
    replaced = final.with_name(f".{final.name}.replaced")
    if final.exists():
        final.rename(replaced)
    temporary.rename(final)
    tracker = final.with_name(TRACKER)
    write_atomically(tracker, str(int(final.name.removeprefix("iter_"))).encode())
    shutil.rmtree(replaced, ignore_errors=True)


def _on_first_rank(action: Callable[[], None]) -> None:
    """Run ``action`` on rank 0; its error is raised on every rank, so that none waits for the others in vain."""
    outcome: list[OSError | None] = [None]
    if dist.get_rank() == 0:
        try:
            action()
        except OSError as error:
            outcome = [error]
    dist.broadcast_object_list(outcome, src=0)
    if outcome[0] is not None:
        raise outcome[0]


def _cause(error: BaseException) -> str:
    """One line for the deepest error, which is the one that says what happened."""
    if isinstance(error, CheckpointException) and error.failures:
        return _cause(next(iter(error.failures.values()))[0])
    if error.__cause__ is not None:
        return _cause(error.__cause__)
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    # torch's file writer hides the operating system's error behind its own.
    return "a file was cut short (disk full, quota or size limit)" if "unexpected pos" in line else line


# --- loading ---------------------------------------------------------------------------------------------------------


def load(path: str | Path, trainer: Trainer) -> dict[str, Any]:
    """Resume ``trainer`` from a checkpoint of this pack, exactly; gives back the ``host_state`` it was saved with."""
    folder = resolve(path)
    common = _load_common(folder)
    state = _sharded_state(trainer, with_optimizer="optimizer" in common, loading=True)
    _check_shapes(state, folder, trainer.bridge.vocab_size)
    with megatron_cpu.device_mode():
        loaded = dist_checkpointing.load(state, str(folder))
    trainer.model.load_state_dict(loaded["model"])
    if "optimizer" in common:
        trainer.optimizer.load_state_dict(loaded["optimizer"])
    trainer.state.steps = common["steps"]
    _set_rng_state(common["rng_state"])
    return common["host_state"]


def _check_shapes(state: dict[str, Any], folder: Path, vocab_size: int) -> None:
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    stored = {key: entry for key, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}
    for tensor in _sharded_tensors(state):
        wanted = tuple(tensor.global_shape)
        if tensor.key not in stored:
            raise CheckpointError(f"{folder}: no tensor {tensor.key}, which this model has with shape {wanted}")
        found = tuple(stored[tensor.key].size)
        padded_otherwise = tensor.allow_shape_mismatch and found[0] >= vocab_size and found[1:] == wanted[1:]
        if found != wanted and not padded_otherwise:
            raise CheckpointError(
                f"{folder}: {tensor.key} has shape {found}, this model needs {wanted}; "
                "HF_CKPT must be the folder of the model that was trained"
            )


def _sharded_tensors(state: dict[str, Any]) -> Iterator[ShardedTensor]:
    for value in nested_values(state):
        built = nested_values(value.build()) if isinstance(value, ShardedTensorFactory) else [value]
        yield from (tensor for tensor in built if isinstance(tensor, ShardedTensor))


def _load_common(folder: Path) -> dict[str, Any]:
    common: dict[str, Any] = {}
    if (folder / "common.pt").exists():
        try:
            common = dist_checkpointing.load_common_state_dict(str(folder))
        except pickle.UnpicklingError:
            pass  # classes of another host
    if "host_state" not in common:
        raise CheckpointError(f"{folder} was not written by this host; to start from its weights, set TORCH_DIST")
    return common


@torch.no_grad()
def load_weights(path: str | Path, bridge: LocalBridge, model: GPTModel) -> None:
    """The weights alone, from a checkpoint of this pack, slime or vime; of those, nothing but tensors is read."""
    folder = resolve(path)
    tensors, expected = ModelTensors(folder), expected_tensors(bridge)
    problem = misfit(tensors.shapes, expected)
    if problem:
        raise CheckpointError(f"{folder} does not fit the model of HF_CKPT: {problem}")
    for local_name, param in model.named_parameters():
        name = stored_name(local_name)
        whole = tensors.read(name)[: expected[name][0]]
        if name in PADDED:
            whole = F.pad(whole, (0, 0, 0, bridge.padded_vocab_size - bridge.vocab_size))
        shards = bridge._weight_split_across_tp(name, whole, param, bridge.mpu.tp_size)
        param.copy_(shards[bridge.mpu.tp_rank])


# --- contents --------------------------------------------------------------------------------------------------------


def _sharded_model(model: GPTModel) -> dict[str, Any]:
    """Of the unwrapped model: a wrapper would put its name in front of every key."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    return model.sharded_state_dict(metadata={"dp_cp_group": group})


def _sharded_state(trainer: Trainer, *, with_optimizer: bool | None = None, loading: bool = False) -> dict[str, Any]:
    model = _sharded_model(trainer.model)
    if with_optimizer is None:
        with_optimizer = bool(trainer.optimizer.state)  # an optimizer that never stepped has nothing to save
    if not with_optimizer:
        return {"model": model}
    return {"model": model, "optimizer": trainer.optimizer.sharded_state_dict(model, is_loading=loading)}


def _common_state(trainer: Trainer, iteration: int, host_state: dict[str, Any]) -> dict[str, Any]:
    return {
        "args": hosts_args(trainer.bridge),
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "steps": trainer.state.steps,
        "rng_state": _rng_state(),
        "host_state": host_state,
    }


def hosts_args(bridge: LocalBridge) -> argparse.Namespace:
    """What Megatron's loader and the hosts' converters read of ``args`` in ``common.pt``."""
    config = bridge.config
    return argparse.Namespace(
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.ffn_hidden_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_query_groups,
        kv_channels=config.kv_channels,
        vocab_size=bridge.vocab_size,
        padded_vocab_size=bridge.padded_vocab_size,
        num_experts=None,
        q_lora_rank=None,
        model_type=bridge.hf_config.model_type,
        untie_embeddings_and_output_weights=not bridge.hf_config.tie_word_embeddings,
        tensor_model_parallel_size=bridge.mpu.tp_size,
        pipeline_model_parallel_size=1,
    )


def _rng_state() -> dict[str, Any]:
    """Rank 0's, for all ranks: nothing in training draws random numbers per rank."""
    name, keys, *rest = np.random.get_state()
    numpy_state = (name, torch.from_numpy(np.array(keys, dtype=np.int64)), *rest)
    return {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}


def _set_rng_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
