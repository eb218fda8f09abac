"""The names of SGLang that slime imports at load time; the real package wants a GPU to install.

Only ``ServerArgs`` is used in a rehearsal, whose engine runs already and shares no memory with the trainer.
"""

import argparse
import sys
from dataclasses import make_dataclass
from typing import Any
from unittest.mock import MagicMock

_FIELDS = (
    "model_path trust_remote_code random_seed enable_memory_saver host port nccl_port nnodes node_rank dist_init_addr "
    "gpu_id_step base_gpu_id tp_size dp_size pp_size ep_size skip_server_warmup enable_draft_weights_cpu_backup "
    "enable_metrics"
)
"""The settings of SGLang 0.5.23's server that slime reads or the pack sets."""


class ServerArgs(make_dataclass("_Fields", [(name, Any, None) for name in _FIELDS.split()])):  # type: ignore[misc]
    """A dataclass, as slime walks over its fields; with engines that run already none of them starts a server."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        for name in ("dp", "pp", "ep", "moe-dp", "tp"):
            parser.add_argument(f"--{name}-size", type=int, default=1)
        parser.add_argument("--mem-fraction-static", type=float, default=None)
        parser.add_argument("--context-length", type=int, default=None)
        parser.add_argument("--enable-dp-attention", action="store_true")


for name in ("", ".constants", ".utils", ".weight_sync", ".weight_sync.tensor_bucket", ".patch_torch"):
    sys.modules[f"sglang.srt{name}"] = MagicMock()
sys.modules["sglang.srt.server_args"] = MagicMock(ServerArgs=ServerArgs)
