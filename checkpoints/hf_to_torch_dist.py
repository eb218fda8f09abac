"""Write a Hugging Face model as the torch_dist checkpoint that slime and vime start from, without a GPU or a model.

::

    mem-agent hf-to-torch-dist --hf MODEL --output DIR [--force]

    DIR/latest_checkpointed_iteration.txt      "release", written last
    DIR/release/{.metadata, __0_0.distcp, common.pt, metadata.json}

This is what the hosts' tools/convert_hf_to_torch_dist.py writes, for ``--ref-load``, ``--load`` or this pack's
TORCH_DIST. Tensors are made one after the other, so memory stays near the largest of them.

* Keys are those of a Transformer Engine model: norms fused into the layers behind them, layers stacked ``[L, ...]``.
* The vocabulary is not padded. The hosts' model has ``--make-vocab-size-divisible-by`` x TP rows or a multiple;
  Megatron's loader takes any number of rows for embedding and output layer and leaves zeros in those it does not find.
* Transformer Engine modules ask for an ``_extra_state`` entry, and Megatron's loader fails without it. It is written
  empty, as it is without FP8, for every module that has one in some version; entries nobody asks for are not read.
* Numbers have the format that config.json names; a host converts them to its own on loading.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemWriter, save
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import WriteItem

from ..system.cli import one_line_errors
from ..system.files import write_atomically
from .bridge import LocalBridge, build_bridge, expected_tensors, from_hf
from .checkpoint import hosts_args
from .folders import TRACKER, CheckpointError, complete_folder
from .hf_folder import HfTensors, check_weights
from .hf_model import local_folder

_STATEFUL = ("self_attention.linear_qkv", "self_attention.linear_proj", "self_attention.core_attention",
             "self_attention.q_layernorm", "self_attention.k_layernorm", "mlp.linear_fc1", "mlp.linear_fc2")
_FORMAT = {"sharded_backend": "torch_dist", "sharded_backend_version": 1,
           "common_backend": "torch", "common_backend_version": 1}


def write_release(hf_dir: str | Path, output: str | Path, *, force: bool = False) -> Path:
    """Write ``output/release`` and the tracker; gives back the checkpoint folder."""
    hf_dir, output = Path(hf_dir), Path(output)
    if any(output.glob("iter_*")):
        raise CheckpointError(f"{output}: holds the checkpoints of a training run; choose a folder of its own")
    bridge = build_bridge(hf_dir)
    planner = _Stream(bridge, check_weights(bridge.hf_config, hf_dir))
    common = {
        "args": hosts_args(bridge), "iteration": 1, "num_floating_point_operations_so_far": 0,
        "checkpoint_version": 3.0,  # below 2.0 Megatron reorders query, key and value
        "content_metadata": {"singleton_local_shards": False, "chained_optim_avoid_prefix": True},
    }
    with complete_folder(output / "release", force, [hf_dir]) as temporary:
        try:
            save(planner.outline, storage_writer=FileSystemWriter(temporary), planner=planner, no_dist=True)
        except CheckpointException as error:  # holds the cause and is no Exception
            raise next(iter(error.failures.values()))[0] from None
        torch.save(common, temporary / "common.pt")
        (temporary / "metadata.json").write_text(json.dumps(_FORMAT))
    write_atomically(output / TRACKER, b"release")
    return output / "release"


class _Stream(DefaultSavePlanner):
    """Makes each tensor when the writer comes to it."""

    def __init__(self, bridge: LocalBridge, tensors: HfTensors) -> None:
        super().__init__(flatten_state_dict=False)
        self._bridge, self._tensors, layers = bridge, tensors, bridge.config.num_layers
        self._names: dict[str, list[str]] = defaultdict(list)
        """Of each key, one for each layer."""
        self.outline: dict[str, Any] = {}
        """Everything in the checkpoint, tensors by shape and number format."""
        for name, shape in expected_tensors(bridge).items():
            key = re.sub(r"\.layers\.\d+\.", ".layers.", name)
            self._names[key].append(name)
            size = shape if key == name else (layers, *shape)
            self.outline[key] = torch.empty(size, dtype=bridge.hf_config.dtype or torch.float32, device="meta")
        states = [f"layers.{module}._extra_state/shard_{i}_{layers}" for module in _STATEFUL for i in range(layers)]
        for state in [*states, "final_layernorm._extra_state/shard_0_1"]:
            # As Megatron writes it: a list with one state, which without FP8 is an empty tensor.
            self.outline[f"decoder.{state}"] = [torch.empty(0, dtype=torch.uint8)]

    def resolve_data(self, write_item: WriteItem) -> Any:
        key = write_item.index.fqn
        if key not in self._names:
            return super().resolve_data(write_item)
        whole = torch.empty_like(self.outline[key], device="cpu")
        for row, name in zip(whole.view(len(self._names[key]), -1), self._names[key], strict=True):
            row.copy_(from_hf(self._bridge, name, self._tensors.read).view(-1))
        return whole


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent hf-to-torch-dist", description=__doc__.splitlines()[0])
    parser.add_argument("--hf", required=True, help="Hugging Face folder or id of the model")
    parser.add_argument("--output", required=True, help="folder to write release/ and the tracker into")
    parser.add_argument("--force", action="store_true", help="replace an existing release")
    args = parser.parse_args(argv)
    folder = write_release(local_folder(args.hf, "--hf"), args.output, force=args.force)
    print(f"{args.hf} -> {folder}")
    return 0
