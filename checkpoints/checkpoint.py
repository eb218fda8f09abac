"""torch_dist checkpoints, in the layout of slime and vime: saving, resuming, and reading them tensor by tensor.

::

    SAVE_PATH/latest_checkpointed_iteration.txt      "99", written last
    SAVE_PATH/iter_0000099/{.metadata, __0_0.distcp, ..., common.pt, metadata.json}

A checkpoint is written into a hidden sibling folder and renamed when complete, so an ``iter_*`` folder is never half
written and the tracker never names one that is. Tensors carry Megatron's names without prefix and load under any
other TP or number of processes; ``common.pt`` holds what is not a tensor, ``args`` among it, which the hosts'
converters read.

A damaged checkpoint is skipped with a warning; the run continues from the newest readable one before it.

``save``, ``load`` and ``load_weights`` are collective: every rank calls them with the same arguments. Rank 0 checks a
checkpoint before it is loaded, and all ranks follow its decision. A trainer has ``model`` and ``optimizer``, which are
megatron-core's, ``bridge``, ``steps`` (optimizer steps taken) and ``lora_rank`` (0 where all weights are trained).
Nothing in training draws random numbers that are not seeded by name, so no generator's state is kept.

``ModelTensors`` needs no model, no process group and no GPU. Checkpoints stack all layers of a kind into one tensor,
``decoder.layers.self_attention.linear_proj.weight [L, ...]``; others keep a tensor per layer. It shows both under one
naming, ``decoder.layers.<i>.<parameter>``, and reads one layer at a time. A weight with an adapter (``lora.py``) is
read merged.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import pickle
import queue
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.strategies import filesystem_async
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.safe_globals import register_safe_globals
from torch.distributed.checkpoint import FileSystemReader, LoadPlan
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from ..system.errors import reason_of
from ..system.files import remove, write_atomically
from .bridge import LocalBridge, expected_tensors
from .folders import TRACKER, CheckpointError, DamagedCheckpoint, latest, newest_of_run, number_of, numbered, resolve
from .hf_folder import first_difference
from .lora import merged
from .megatron_cpu import device_mode

logger = logging.getLogger("mem_agent")


# --- reading -------------------------------------------------------------------------------------------------------


_NOT_MODEL = re.compile(r"optimizer|_extra_state|(^|\.)rng_state|opt_param_scheduler|rerun_state")
_STACKED = re.compile(r"decoder\.layers\.(?!\d+\.)(.+)")
PADDED = {"embedding.word_embeddings.weight", "output_layer.weight"}


def stored_name(name: str) -> str:
    """The uniform name of a parameter, also where the layer spec keeps the norms as modules of their own."""
    name = name.replace(".input_layernorm.", ".self_attention.linear_qkv.layer_norm_")
    return name.replace(".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_")


# --- .metadata -------------------------------------------------------------------------------------------------------


_DESCRIPTIONS = re.compile(
    r"torch\.distributed\.checkpoint\.(metadata|filesystem|planner)\._?[A-Z]\w*"
    r"|torch\.(Size|bool|b?float\d\w*|u?int\d+|complex\d+|serialization\._get_layout)"
    r"|builtins\.(set|frozenset|list|dict|tuple|int|bool|slice)|collections\.(OrderedDict|defaultdict)"
    r"|pathlib\.(_local\.)?PosixPath"
)


class _Unpickler(pickle.Unpickler):
    """Reads ``.metadata``. A pickle runs whatever it names, and megatron-core loads the same file unrestricted after
    this pass, so only names that describe tensors are allowed. Megatron's own classes become blanks.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("megatron."):
            return _Blank
        if (module, name) == ("builtins", "getattr"):
            return lambda kind, member: kind[member]  # an enum, as Python 3.11.0 to 3.11.3 pickles it
        if not _DESCRIPTIONS.fullmatch(f"{module}.{name}"):
            raise pickle.UnpicklingError(f"it names {module}.{name}, which describes no tensor")
        return super().find_class(module, name)


class _Blank:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


@contextlib.contextmanager
def damage_named(folder: Path, file: str) -> Iterator[None]:
    """Turn any error from reading a broken file into DamagedCheckpoint: KeyError, UnicodeDecodeError, ..."""
    try:
        yield
    except (Exception, CheckpointException) as error:  # torch's is not an Exception
        if isinstance(error, PermissionError | MemoryError | torch.OutOfMemoryError):
            raise
        raise DamagedCheckpoint(f"{folder}: the checkpoint is damaged: {file}: {reason_of(error)}") from error


# --- tensors ---------------------------------------------------------------------------------------------------------


class ModelTensors:
    """The model's tensors in one checkpoint folder (the one with ``.metadata``), by uniform name."""

    def __init__(self, folder: str | Path) -> None:
        """Raises DamagedCheckpoint where ``.metadata`` cannot be read."""
        self._folder, self._reader = Path(folder), FileSystemReader(folder)
        with damage_named(self._folder, ".metadata"):
            with (self._folder / ".metadata").open("rb") as pickled:
                self._metadata: Metadata = _Unpickler(pickled).load()
            self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)
        self._sources: dict[str, tuple[str, int | None, tuple[int, ...]]] = {}
        """Uniform name -> its key, its index into a stacked tensor (None: it is this one alone) and its shape."""
        for key, entry in self._metadata.state_dict_metadata.items():
            if not isinstance(entry, TensorStorageMetadata) or _NOT_MODEL.search(key):
                continue
            shape = tuple(entry.size)
            if stacked := _STACKED.fullmatch(key):
                for layer in range(shape[0]):
                    uniform = stored_name(f"decoder.layers.{layer}.{stacked[1]}")
                    self._sources[uniform] = (key, layer, shape[1:])
            else:
                self._sources[stored_name(key)] = (key, None, shape)
        self.shapes = {name: shape for name, (_, _, shape) in self._sources.items() if ".lora." not in name}

    def check_fit(self, expected: dict[str, tuple[int, ...]]) -> None:
        """Raises CheckpointError where this is a checkpoint of another model. A padded vocabulary fits."""
        found = dict(self.shapes)
        for name in PADDED & found.keys() & expected.keys():
            found[name] = (min(found[name][0], expected[name][0]), *found[name][1:])
        if problem := first_difference(found, expected):
            raise CheckpointError(
                f"{self._folder} does not fit HF_CKPT (--hf): {problem}; name the model that was trained")

    def read(self, name: str) -> torch.Tensor:
        """A tensor of ``shapes``; where it has an adapter, merged in float32."""
        tensor, module = self._read(name), name.removesuffix(".weight")
        if f"{module}.lora.a" not in self._sources:
            return tensor
        return merged(tensor, self._read(f"{module}.lora.a"), self._read(f"{module}.lora.b"))

    def _read(self, name: str) -> torch.Tensor:
        key, layer, shape = self._sources[name]
        stored: Any = self._metadata.state_dict_metadata[key]
        offsets, sizes = [0] * len(stored.size), list(stored.size)
        if layer is not None:
            offsets[0], sizes[0] = layer, 1
        chunk = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        with damage_named(self._folder, key):
            target = torch.zeros(sizes, dtype=stored.properties.dtype)
            items = create_read_items_for_chunk_list(key, stored, [chunk])
            self._reader.read_data(LoadPlan(items), _Into(target)).wait()
        return target.view(shape)

    def check_bytes(self) -> None:
        """Read every byte, optimizer included, and verify the checksums, which torch does not. Raises
        DamagedCheckpoint.
        """
        for info in self._metadata.storage_data.values():
            with damage_named(self._folder, info.relative_path):
                with (self._folder / info.relative_path).open("rb") as file:
                    file.seek(info.offset)
                    if wrong := zipfile.ZipFile(io.BytesIO(file.read(info.length))).testzip():
                        raise zipfile.BadZipFile(f"wrong checksum for {wrong}")


class _Into(DefaultLoadPlanner):
    """Puts every piece that is read where it belongs in one tensor."""

    def __init__(self, target: torch.Tensor) -> None:
        super().__init__()
        self._target = target

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        return self._target


# --- saving ----------------------------------------------------------------------------------------------------------


def save(save_path: str | Path, iteration: int, trainer: Any, host_state: dict[str, Any]) -> Path:
    """Write ``iter_<iteration>`` and make it the latest; ``host_state`` is any JSON-able dict, given back by load."""
    final = Path(save_path) / f"iter_{iteration:07d}"
    temporary = final.with_name(f".{final.name}.writing")
    first = dist.get_rank() == 0
    common = {
        "args": hosts_args(trainer.bridge), "checkpoint_version": 3.0, "iteration": iteration,
        "steps": trainer.steps, "host_state": host_state, "form": _form(trainer),
    }
    try:
        if first:
            remove(temporary)
            temporary.mkdir(parents=True)
        dist.barrier()
        # One process writes and collects its own results: no need for mcore's queue in a spawned process, which
        # would run the caller's main module again.
        filesystem_async._results_queue = queue.Queue()
        with device_mode():
            # An optimizer that never stepped has nothing to save.
            state = _sharded_state(trainer, with_optimizer=bool(trainer.optimizer.state), loading=False)
            dist_checkpointing.save(
                state | common, str(temporary), ("torch_dist", 1),
                preprocess_common_before_consistancy_check=lambda common: {"iteration": common["iteration"]},
            )
        if first:
            tracker = final.with_name(TRACKER)
            if final.exists() and latest(final.parent) == final:
                tracker.unlink()  # it must not name a damaged checkpoint while that is replaced
            remove(final)
            temporary.rename(final)
            write_atomically(tracker, str(iteration).encode())
        dist.barrier()
    # Writing fails in many types, and torch's CheckpointException is not an Exception.
    except (Exception, CheckpointException) as error:
        if first:
            shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(f"{final}: could not be written: {_cause(error)}; free disk space and run the same "
                              "command: it continues from the last complete checkpoint") from error
    return final


def _cause(error: BaseException) -> str:
    """What began it, as one line."""
    if isinstance(error, CheckpointException):
        error, _ = next(iter(error.failures.values()))
    return _cause(error.__cause__) if error.__cause__ else reason_of(error)


# --- loading ---------------------------------------------------------------------------------------------------------


def load(save_path: str | Path, trainer: Any) -> dict[str, Any]:
    """Resume ``trainer`` from the newest checkpoint of a run of this pack that is not damaged, exactly; gives back the
    ``host_state`` it was saved with.
    """
    newest = newest_of_run(save_path) or resolve(save_path)
    number_of(newest)  # raises for a converted model
    for folder in reversed(numbered(newest.parent, newest)):
        try:
            return _load(folder, trainer)
        except DamagedCheckpoint as error:
            logger.warning("%s; going on from the checkpoint before it", error)
            last = error
    raise CheckpointError(f"{last}; no earlier one is readable; restore a copy, or start over in another SAVE_PATH")


def _load(folder: Path, trainer: Any) -> dict[str, Any]:
    """Raises DamagedCheckpoint, on all ranks, where a file is missing, cut or changed."""
    verdict: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            verdict = [_checked(folder, trainer)]
        except CheckpointError as error:
            verdict = [error]
    dist.broadcast_object_list(verdict, src=0)
    [common] = verdict
    if isinstance(common, CheckpointError):
        raise common
    state = _sharded_state(trainer, with_optimizer="optimizer" in common, loading=True)
    # Objects are stored as pickles, which megatron-core runs. Without FP8 they hold nothing.
    objects = {key: None for key, value in state["model"].items() if isinstance(value, ShardedObject)}
    state["model"] = {key: value for key, value in state["model"].items() if key not in objects}
    with device_mode(), damage_named(folder, "metadata.json"):
        loaded = dist_checkpointing.load(state, str(folder))
    trainer.model.load_state_dict(loaded["model"] | objects)
    if "optimizer" in common:
        trainer.optimizer.load_state_dict(loaded["optimizer"])
    else:
        trainer.optimizer.reload_model_params()  # master weights, where there are any
    trainer.steps = common["steps"]
    return dict(common["host_state"])


def _checked(folder: Path, trainer: Any) -> dict[str, Any]:
    """``common.pt``, after every file of the checkpoint was verified. Raises CheckpointError."""
    register_safe_globals()  # argparse.Namespace among them
    with damage_named(folder, "common.pt"):
        try:
            common: dict[str, Any] = torch.load(folder / "common.pt", map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # classes of another host
            common = {}
    if "host_state" not in common:
        raise CheckpointError(f"{folder} was not written by this host; to start from its weights, set TORCH_DIST")
    if (left := common["form"]) != (own := _form(trainer)):
        raise CheckpointError(f"{folder} was written with {left}, this run has {own}; set it as it was, or start in "
                              "another SAVE_PATH from the Hugging Face folder that it converts to")
    tensors = ModelTensors(folder)
    tensors.check_fit(expected_tensors(trainer.bridge))
    tensors.check_bytes()
    return common


@torch.no_grad()
def load_weights(path: str | Path, bridge: LocalBridge, model: GPTModel) -> None:
    """Load only the weights, from a checkpoint of this pack, slime or vime. Nothing but tensors is read."""
    tensors, expected = ModelTensors(resolve(path)), expected_tensors(bridge)
    tensors.check_fit(expected)
    for local_name, param in model.named_parameters():
        name = stored_name(local_name)
        whole = tensors.read(name)[: expected[name][0]]
        if name in PADDED:
            whole = F.pad(whole, (0, 0, 0, bridge.padded_vocab_size - bridge.vocab_size))
        shards = bridge._weight_split_across_tp(name, whole, param, bridge.mpu.tp_size)
        param.copy_(shards[bridge.mpu.tp_rank])


# --- contents --------------------------------------------------------------------------------------------------------


def _sharded_state(trainer: Any, *, with_optimizer: bool, loading: bool) -> dict[str, Any]:
    """Of the unwrapped model: a wrapper would put its name in front of every key."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    state = {"model": trainer.model.sharded_state_dict(metadata={"dp_cp_group": group})}
    if with_optimizer:
        state["optimizer"] = trainer.optimizer.sharded_state_dict(state["model"], is_loading=loading)
    return state


def _form(trainer: Any) -> str:
    """The settings that its tensors and their number format follow from."""
    return f"TRAIN_DTYPE={str(trainer.bridge.dtype).removeprefix('torch.')} LORA_RANK={trainer.lora_rank}"


def hosts_args(bridge: LocalBridge) -> argparse.Namespace:
    """What Megatron's loader and the hosts' converters read of ``args`` in ``common.pt``."""
    sizes = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels")
    return argparse.Namespace(
        **{name: getattr(bridge.config, name) for name in sizes}, num_experts=None, q_lora_rank=None,
        vocab_size=bridge.vocab_size, padded_vocab_size=bridge.padded_vocab_size,
        model_type=bridge.hf_config.model_type,
        untie_embeddings_and_output_weights=not bridge.hf_config.tie_word_embeddings,
        tensor_model_parallel_size=bridge.mpu.tp_size, pipeline_model_parallel_size=1,
    )
