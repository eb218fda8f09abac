"""The flags of SGLang 0.5.23's server that slime reads or the pack sets, with their types and defaults."""

from dataclasses import dataclass


@dataclass
class ServerArgs:
    """slime takes the names of its fields for what a server can be told."""

    model_path: str = ""
    host: str = "127.0.0.1"
    port: int = 30000
    nccl_port: int | None = None
    dist_init_addr: str | None = None
    nnodes: int = 1
    node_rank: int = 0
    base_gpu_id: int = 0
    dp_size: int = 1
    pp_size: int = 1
    ep_size: int = 1
    moe_dp_size: int = 1
    tp_size: int = 1
    mem_fraction_static: float | None = None
    context_length: int | None = None
    enable_dp_attention: bool = False
    trust_remote_code: bool = False
    random_seed: int | None = None
    enable_memory_saver: bool = False
    skip_server_warmup: bool = False
    enable_draft_weights_cpu_backup: bool = False

    @classmethod
    def add_cli_args(cls, parser):
        for name in ("dp", "pp", "ep", "moe-dp", "tp"):
            parser.add_argument(f"--{name}-size", type=int, default=1)
        parser.add_argument("--mem-fraction-static", type=float, default=None)
        parser.add_argument("--context-length", type=int, default=None)
        parser.add_argument("--enable-dp-attention", action="store_true")
