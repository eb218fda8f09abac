"""Saving and resuming: torch_dist checkpoints in the layout of slime and vime.

::

    SAVE_PATH/latest_checkpointed_iteration.txt      "99", written last
    SAVE_PATH/iter_0000099/{.metadata, __0_0.distcp, ..., common.pt, metadata.json, SHA256SUMS}

A checkpoint is written into a hidden sibling folder and renamed when complete, so an ``iter_*`` folder is never half
written and the tracker never names one that is. Tensors carry Megatron's names without prefix and load under any
other TP or number of processes; ``common.pt`` holds what is not a tensor, ``args`` among it, which the hosts'
converters read.

What is loaded has been read by ``whole.py`` before, which knows damage and runs nothing.

``save``, ``load`` and ``load_weights`` are collective: every rank calls them with the same arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import random
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
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from ..system.atomic_file import write_atomically
from ..system.errors import MemAgentError
from ..system.removal import remove, remove_or_tell
from . import megatron_cpu
from .bridge import LocalBridge, expected_tensors
from .damage import DamagedCheckpoint, damaged
from .folders import TRACKER, CheckpointError, latest, number_of, numbered, resolve
from .hashes import check_hashes, write_hashes
from .torch_dist import PADDED, ModelTensors, misfit, stored_name
from .whole import NO_OTHER, newest_whole, other_named, read_checkpoint, whole_before

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
            remove_or_tell(temporary)
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
    write_hashes(temporary)
    replaced = final.with_name(f".{final.name}.replaced")
    tracker = final.with_name(TRACKER)
    if os.path.lexists(final):
        _name_an_older(tracker, final)
        remove(replaced)  # of a run that was killed right here
        final.rename(replaced)
    temporary.rename(final)
    write_atomically(tracker, str(int(final.name.removeprefix("iter_"))).encode())
    remove_or_tell(replaced)


def _name_an_older(tracker: Path, final: Path) -> None:
    """Whoever is killed between two renames leaves no ``final``: then nobody may look for it."""
    if latest(tracker.parent) == final:
        older = [number for number in map(number_of, numbered(tracker.parent)) if number < number_of(final)]
        if older:
            write_atomically(tracker, str(older[-1]).encode())
        else:
            tracker.unlink()


def on_first_rank(action: Callable[[], T]) -> T:
    """What ``action`` gives on rank 0; its error is raised on every rank: none waits for the others in vain."""
    outcome: list[tuple[T | None, Exception | None]] = [(None, None)]
    if dist.get_rank() == 0:
        try:
            outcome = [(action(), None)]
        except (MemAgentError, OSError) as error:
            outcome = [(None, error)]
    dist.broadcast_object_list(outcome, src=0)
    result, problem = outcome[0]
    if problem is not None:
        raise problem
    return cast("T", result)


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
    folder = on_first_rank(lambda: newest_whole(path))
    with _way_back_named(folder):
        common, metadata = read_checkpoint(folder)
        _check_adapters(common.get("lora"), trainer.lora, folder)
        state = _sharded_state(trainer, with_optimizer="optimizer" in common, loading=True)
        _check_shapes(state, metadata, folder, trainer.bridge.vocab_size)
        # Objects are stored as pickles, which megatron-core runs. Without FP8 they hold nothing.
        objects = {key: None for key, value in state["model"].items() if isinstance(value, ShardedObject)}
        state["model"] = {key: value for key, value in state["model"].items() if key not in objects}
        assert not any(isinstance(value, ShardedObject) for value in nested_values(state)), "the optimizer has objects"
        with megatron_cpu.device_mode():
            loaded = dist_checkpointing.load(state, str(folder))
        trainer.model.load_state_dict(loaded["model"] | objects)
        if "optimizer" in common:
            trainer.optimizer.load_state_dict(loaded["optimizer"])
        if type(common["steps"]) is not int or not 0 <= common["steps"] < 2**53:
            raise damaged(folder, "common.pt", "steps are no number")
        trainer.state.steps = common["steps"]
        _set_rng_state(common["rng_state"])
    return common["host_state"]


@contextlib.contextmanager
def _way_back_named(folder: Path) -> Iterator[None]:
    """What only megatron-core's own reading shows, of checkpoints without hashes, becomes one line."""
    try:
        yield
    except (CheckpointError, MemoryError, torch.OutOfMemoryError):
        raise
    # Reading fails in many types, and torch's CheckpointException is not an Exception.
    except (Exception, CheckpointException) as error:
        cause = str(error) if isinstance(error, DamagedCheckpoint) else f"{folder}: cannot be read: {_cause(error)}"
        older = whole_before(folder)
        back = f"to go on from {older}, write its number into {folder.parent / TRACKER}" if older else NO_OTHER
        raise CheckpointError(f"{cause}; {back}") from error


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
    with other_named(folder, "set TORCH_DIST={}".format):
        on_first_rank(lambda: check_hashes(folder))
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
    if not 0 <= position <= len(keys):  # where numpy reads, without a look of its own
        raise ValueError(f"rng_state is at number {position} of {len(keys)}")
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, *rest))
    torch.set_rng_state(state["torch"])
