"""Saving and resuming: torch_dist checkpoints in the layout of slime and vime.

::

    SAVE_PATH/latest_checkpointed_iteration.txt      "99", written last
    SAVE_PATH/iter_0000099/{.metadata, __0_0.distcp, ..., common.pt, metadata.json}

A checkpoint is written into a hidden sibling folder and renamed when complete, so an ``iter_*`` folder is never half
written and the tracker never names one that is. Tensors carry Megatron's names without prefix and load under any
other TP or number of processes; ``common.pt`` holds what is not a tensor, ``args`` among it, which the hosts'
converters read.

A damaged checkpoint is never used: a run goes on from the newest one before it that can be read, and says so.

``save``, ``load`` and ``load_weights`` are collective: every rank calls them with the same arguments.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pickle
import queue
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, ShardedTensorFactory
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.safe_globals import register_safe_globals
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from ..system.errors import MemAgentError, reason_of
from ..system.files import remove, write_atomically
from . import megatron_cpu
from .bridge import LocalBridge, expected_tensors
from .folders import (
    TRACKER,
    CheckpointError,
    DamagedCheckpoint,
    before,
    latest,
    newest_of_run,
    number_of,
    resolve,
)
from .torch_dist import PADDED, ModelTensors, check_bytes, damage_explained, misfit, read_metadata, stored_name

logger = logging.getLogger("mem_agent")
T = TypeVar("T")


@dataclass
class TrainState:
    """What a checkpoint holds of a trainer besides tensors."""

    steps: int = 0
    """Optimizer steps taken with the training learning rate; warm-up counts these."""


class Trained(Protocol):
    """What is saved, and loaded into: a trainer."""

    model: GPTModel
    optimizer: Any
    """megatron-core's."""
    bridge: LocalBridge
    state: TrainState
    lora: dict[str, float] | None
    """Rank and alpha of its adapters; None where all weights are trained."""


# --- saving ----------------------------------------------------------------------------------------------------------


def save(save_path: str | Path, iteration: int, trainer: Trained, host_state: dict[str, Any]) -> Path:
    """Write ``iter_<iteration>`` and make it the latest; ``host_state`` is any JSON-able dict, given back by load."""
    final = Path(save_path) / f"iter_{iteration:07d}"
    temporary = final.with_name(f".{final.name}.writing")
    try:
        on_first_rank(lambda: _empty_folder(temporary))
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
        on_first_rank(lambda: _publish(temporary, final))
    # Writing fails in many types, and torch's CheckpointException is not an Exception.
    except (Exception, CheckpointException) as error:
        if dist.get_rank() == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"{final}: checkpoint not written: {_cause(error)}; free disk space or set another SAVE_PATH, "
            f"then resume; {_what_is_left(save_path)}"
        ) from error
    return final


def _what_is_left(save_path: str | Path) -> str:
    try:
        good = latest(save_path)
    except (MemAgentError, OSError) as error:
        return str(error)
    return f"the last good checkpoint {good} is intact" if good else "there is no earlier checkpoint"


def _empty_folder(folder: Path) -> None:
    remove(folder)
    folder.mkdir(parents=True)


def _publish(temporary: Path, final: Path) -> None:
    replaced = final.with_name(f".{final.name}.replaced")
    tracker = final.with_name(TRACKER)
    if os.path.lexists(final):
        _name_an_older(tracker, final)
        remove(replaced)  # of a run that was killed right here
        final.rename(replaced)
    temporary.rename(final)
    write_atomically(tracker, str(number_of(final)).encode())
    remove(replaced)


def _name_an_older(tracker: Path, final: Path) -> None:
    """Whoever is killed between two renames leaves no ``final``: then nobody may look for it."""
    if latest(tracker.parent) == final:
        if older := before(final):
            write_atomically(tracker, str(number_of(older[-1])).encode())
        else:
            tracker.unlink()


def on_first_rank(action: Callable[[], T]) -> T:
    """What ``action`` gives on rank 0; its error is raised on every rank, so that none waits for rank 0 in vain."""
    outcome: list[tuple[T | None, BaseException | None]] = [(None, None)]
    if dist.get_rank() == 0:
        try:
            outcome = [(action(), None)]
        except (Exception, CheckpointException) as error:
            outcome = [(None, _sendable(error))]
    dist.broadcast_object_list(outcome, src=0)
    result, problem = outcome[0]
    if problem is not None:
        raise problem
    return cast("T", result)


def _sendable(error: BaseException) -> BaseException:
    """The error, or where it cannot be pickled and read again, what it says."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(reason_of(error))
    return error


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


def load(path: str | Path, trainer: Trained) -> dict[str, Any]:
    """Resume ``trainer`` from a checkpoint of this pack, exactly; gives back the ``host_state`` it was saved with.

    ``path`` is the checkpoint, or the folder of its run: then, where the newest is damaged, a whole one before it.
    """
    newest = on_first_rank(lambda: newest_of_run(path) or resolve(path))
    older = on_first_rank(lambda: before(newest)) if newest != Path(path) else []
    for folder in (newest, *reversed(older)):
        try:
            return _load(folder, trainer)
        except DamagedCheckpoint as error:
            logger.warning("%s; going on from the checkpoint before it", error)
            last = error
    raise CheckpointError(
        f"{last}; no checkpoint before it can be read; copy it again if it is a copy, "
        "or start anew in another SAVE_PATH"
    )


def _load(folder: Path, trainer: Trained) -> dict[str, Any]:
    """Raises DamagedCheckpoint on every rank where one of them cannot read its part."""
    common, metadata = on_first_rank(lambda: _read_checkpoint(folder))
    _check_adapters(common.get("lora"), trainer.lora, folder)
    state = _sharded_state(trainer, with_optimizer="optimizer" in common, loading=True)
    _check_shapes(state, metadata, folder, trainer.bridge.vocab_size)
    # Objects are stored as pickles, which megatron-core runs. Without FP8 they hold nothing.
    objects = {key: None for key, value in state["model"].items() if isinstance(value, ShardedObject)}
    state["model"] = {key: value for key, value in state["model"].items() if key not in objects}
    assert not any(isinstance(value, ShardedObject) for value in nested_values(state)), "the optimizer has objects"
    try:
        with megatron_cpu.device_mode():
            loaded = dist_checkpointing.load(state, str(folder))
    except (MemoryError, torch.OutOfMemoryError):
        raise
    # Reading fails in many types, on all ranks alike, and torch's CheckpointException is not an Exception.
    except (Exception, CheckpointException) as error:
        raise DamagedCheckpoint(f"{folder}: cannot be read: {_cause(error)}") from error
    trainer.model.load_state_dict(loaded["model"] | objects)
    if "optimizer" in common:
        trainer.optimizer.load_state_dict(loaded["optimizer"])
    trainer.state.steps = common["steps"]
    _set_rng_state(common["rng_state"])
    host_state: dict[str, Any] = common["host_state"]
    return host_state


def _read_checkpoint(folder: Path) -> tuple[dict[str, Any], Metadata]:
    """``common.pt`` and ``.metadata`` of a checkpoint of this pack.

    Raises:
        CheckpointError: another host wrote it.
        DamagedCheckpoint: a file is missing, cut or overwritten.
    """
    of_another_host = f"{folder} was not written by this host; to start from its weights, set TORCH_DIST"
    if not any((folder / name).is_file() for name in ("common.pt", "metadata.json")):
        raise CheckpointError(of_another_host)
    metadata = read_metadata(folder)
    with damage_explained(folder, "metadata.json"):
        json.loads((folder / "metadata.json").read_bytes())["sharded_backend"]
    register_safe_globals()  # argparse.Namespace among them
    with damage_explained(folder, "common.pt"):
        try:
            common = torch.load(folder / "common.pt", map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # classes of another host
            raise CheckpointError(of_another_host) from None
        if "host_state" not in common:
            raise CheckpointError(of_another_host)
    check_bytes(folder, metadata)
    return common, metadata


def _check_adapters(saved: dict[str, float] | None, own: dict[str, float] | None, folder: Path) -> None:
    """That none would be left out, or made anew."""
    if saved != own:
        said, wanted = (
            ", ".join(f"LORA_{name.upper()}={value:g}" for name, value in (lora or {"rank": 0}).items())
            for lora in (saved, own)
        )
        raise CheckpointError(
            f"{folder} was written with {said}, this run has {wanted}; set them as they were, or convert it to a "
            "Hugging Face folder, where adapters are merged, and start from that in another SAVE_PATH"
        )


def _check_shapes(state: dict[str, Any], metadata: Metadata, folder: Path, vocab_size: int) -> None:
    entries = metadata.state_dict_metadata.items()
    stored = {key: entry for key, entry in entries if isinstance(entry, TensorStorageMetadata)}
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


def _sharded_state(trainer: Trained, *, with_optimizer: bool | None = None, loading: bool = False) -> dict[str, Any]:
    model = _sharded_model(trainer.model)
    if with_optimizer is None:
        with_optimizer = bool(trainer.optimizer.state)  # an optimizer that never stepped has nothing to save
    if not with_optimizer:
        return {"model": model}
    return {"model": model, "optimizer": trainer.optimizer.sharded_state_dict(model, is_loading=loading)}


def _common_state(trainer: Trained, iteration: int, host_state: dict[str, Any]) -> dict[str, Any]:
    return {
        "args": hosts_args(trainer.bridge),
        "checkpoint_version": 3.0,
        "iteration": iteration,
        "steps": trainer.state.steps,
        "rng_state": _rng_state(),
        "host_state": host_state,
        "lora": trainer.lora,
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
    name, keys, position, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, *rest))
    torch.set_rng_state(state["torch"])
