"""The names of SGLang that slime imports at load time; the real package wants a GPU to install."""

import argparse
import sys
from dataclasses import make_dataclass
from types import ModuleType
from typing import Any

_FIELDS = (
    "model_path trust_remote_code random_seed enable_memory_saver host port nccl_port nnodes node_rank dist_init_addr "
    "gpu_id_step base_gpu_id tp_size dp_size pp_size ep_size skip_server_warmup enable_draft_weights_cpu_backup "
    "enable_metrics"
)
"""The settings of SGLang 0.5.23's server that slime reads or the pack sets."""

_MEMORY_TYPES = "GPU_MEMORY_TYPE_CUDA_GRAPH GPU_MEMORY_TYPE_KV_CACHE GPU_MEMORY_TYPE_WEIGHTS"


class ServerArgs(make_dataclass("_Fields", [(name, Any, None) for name in _FIELDS.split()])):  # type: ignore[misc]
    """A dataclass, as slime walks over its fields; with engines that run already none of them starts a server."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        for name in ("dp", "pp", "ep", "moe-dp", "tp"):
            parser.add_argument(f"--{name}-size", type=int, default=1)
        parser.add_argument("--mem-fraction-static", type=float, default=None)
        parser.add_argument("--context-length", type=int, default=None)
        parser.add_argument("--enable-dp-attention", action="store_true")


def _stand_in(module: str, **names: Any) -> None:
    made = ModuleType(module)
    made.__path__ = []
    vars(made).update(names)
    sys.modules[module] = made


def _kill_process_tree(pid: int, *args: Any, **kwargs: Any) -> None:
    raise AssertionError("a rehearsal's SGLang is not slime's child")


__path__: list[str] = []
_stand_in("sglang.srt")
_stand_in("sglang.srt.server_args", ServerArgs=ServerArgs)
_stand_in("sglang.srt.constants", **dict.fromkeys(_MEMORY_TYPES.split(), ""))
_stand_in("sglang.srt.utils", kill_process_tree=_kill_process_tree, MultiprocessingSerializer=object)
_stand_in("sglang.srt.weight_sync")
_stand_in("sglang.srt.weight_sync.tensor_bucket", FlattenedTensorBucket=object)
_stand_in("sglang.srt.patch_torch", monkey_patch_torch_reductions=lambda: None)  # no CUDA tensors are shared
