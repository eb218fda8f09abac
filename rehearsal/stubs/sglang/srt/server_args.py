"""The settings of SGLang 0.5.23's server that slime reads or the pack sets, with their types and defaults."""

import argparse
from dataclasses import dataclass
from typing import Any


@dataclass
class ServerArgs:
    """A dataclass, as slime walks over its fields; with engines that run already none of them starts a server."""

    model_path: Any = None
    trust_remote_code: Any = None
    random_seed: Any = None
    enable_memory_saver: Any = None
    host: Any = None
    port: Any = None
    nccl_port: Any = None
    nnodes: Any = None
    node_rank: Any = None
    dist_init_addr: Any = None
    gpu_id_step: Any = None
    base_gpu_id: Any = None
    tp_size: Any = None
    dp_size: Any = None
    pp_size: Any = None
    ep_size: Any = None
    skip_server_warmup: Any = None
    enable_draft_weights_cpu_backup: Any = None
    enable_metrics: Any = None

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        for name in ("dp", "pp", "ep", "moe-dp", "tp"):
            parser.add_argument(f"--{name}-size", type=int, default=1)
        parser.add_argument("--mem-fraction-static", type=float, default=None)
        parser.add_argument("--context-length", type=int, default=None)
        parser.add_argument("--enable-dp-attention", action="store_true")
