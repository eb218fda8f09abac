"""How the servers of a fleet are started: vLLM engines, and the vLLM router in front of them.

Settings of an engine that are more than taste:

- ``--logprobs-mode processed_logprobs``: the returned log-probs are those of the distribution that was sampled from,
  at any temperature.
- ``--enable-scale-out`` and ``VLLM_SERVER_DEV_MODE=1``: without them the token-in-token-out and the weight endpoints
  answer 403 and 404.
- ENGINE_ARGS stands last, and of two flags of one name vLLM takes the last.
- On CPU, one executor without a shared-memory queue and one OpenMP thread: other settings spin on the cores that the
  trainer needs. ``VLLM_CPU_KVCACHE_SPACE`` is removed because it would override ``--kv-cache-memory-bytes``. Dynamo is
  off because even an eager server would otherwise run a C++ compiler for many seconds within the first request. The
  engine process is forked from the API server's, which has imported vLLM already (``engine_server.py``).

The router is one address for generation. It starts empty and only learns of engines whose weights were verified; a
worker that it finds again by its own health check would come back with stale weights, so replaced engines get a new
port and are removed there first. Requests with one ``X-Session-ID`` go to one engine, so those that share a key find
its prefix cache (``rollout_client``). A new key goes to the engine with the fewest bound keys. A key stays bound until
the client ends it, its engine is gone, or two hours have passed since its last request. If keys were never ended, the
counts would show past load, and fast and slow engines would get new keys in equal numbers. Keys cost 0.2 KB each (79
MB before, 119 MB after 200,000 keys). A consistent hash would put 4 groups on 2 engines as 3 and 1, or worse, five
times of eight.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from ..config import Config
from ..rollout_client import TIMEOUT_S
from ..system.cli import python_module
from ..system.plugins import shell_words
from .control import ADMIT_TIMEOUT_S

Device = Literal["cpu", "cuda"]

SERVER = "vllm.entrypoints.openai.api_server"
FORKING_SERVER = "mem_agent.serving.engine_server"
"""The same with half the imports, on CPU."""
SERVED_NAME = "policy"
"""What requests may put into their ``model`` field."""
SEQUENCES = 64
"""Requests that an engine decodes at once."""
BLOCK_TOKENS = 32
"""Tokens of a cache block, the unit in which prefixes are shared."""
KV_BYTES = 2**30
"""Size of the key-value cache on CPU."""
GPU_SHARE = 0.7
"""Share of a GPU's memory that its engines take together."""
REQUEST_TIMEOUT_S = int(TIMEOUT_S)
"""For one generation request; the router's flag takes whole seconds."""
KERNELS = "64"
"""As many oneDNN keeps, by shape, of those that it compiled, unless ONEDNN_PRIMITIVE_CACHE_CAPACITY says otherwise. By
its own default, 1,024, a pocket engine grows from 640 to 1,110 MB within 6,000 requests; with 64 it stays at 684, and
takes the same CPU time (51.7 s for 3,872 requests against 50.5; vLLM 0.32, AMD EPYC, once each)."""


def engine_command(config: Config, model: Path, port: int, device: Device, index: int) -> list[str]:
    """The command line of server number ``index`` for ``model`` on 127.0.0.1."""
    command = [
        *python_module(FORKING_SERVER if device == "cpu" else SERVER),
        "--model", str(model), "--served-model-name", SERVED_NAME,
        "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(config.engine_max_len),
        # Engines with one seed would sample the same replies to the same prompt.
        "--seed", str(config.seed + index),
        "--logprobs-mode", "processed_logprobs",
        "--generation-config", "vllm",
        "--worker-extension-cls", "mem_agent.serving.engine_server.PolicyReload",
        "--enable-prefix-caching", "--enable-prompt-tokens-details",
        *engine_options(config, device),
    ]
    if config.trust_remote_code:
        command += ["--trust-remote-code"]
    if device == "cuda":
        engines_of_one_gpu = -(-config.num_engines // len(visible_gpus(os.environ)))
        command += ["--gpu-memory-utilization", f"{GPU_SHARE / engines_of_one_gpu:g}"]
    return command + shell_words("ENGINE_ARGS", config.engine_args)


def visible_gpus(env: Mapping[str, str]) -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = [name for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return named[:count] or [str(number) for number in range(count)]


def engine_options(config: Config, device: Device) -> list[str]:
    """What a server that runs on ``device`` is told by whoever starts it, this pack or a host."""
    of_device = "bfloat16" if device == "cuda" else "float32"
    dtype = of_device if config.train_dtype == "auto" else config.train_dtype
    options = [
        "--dtype", dtype,
        "--max-num-seqs", str(SEQUENCES),
        "--block-size", str(BLOCK_TOKENS),
        "--enable-scale-out", "--disable-uvicorn-access-log",
    ]
    if device == "cpu":
        # With chunked prefill, a seeded request whose prompt is only partly computed rewinds its random generator,
        # which CPU generators cannot do: the whole engine dies ("CPU Generator does not use offset", vLLM 0.32).
        options += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(4096, config.engine_max_len))]
        options += ["--kv-cache-memory-bytes", str(KV_BYTES), "--enforce-eager",
                    "--distributed-executor-backend", "uni"]
    return options


def engine_environment(base: Mapping[str, str], device: Device, index: int) -> dict[str, str]:
    """``base`` with what a server needs; servers get the visible GPUs in turns."""
    env = {k: v for k, v in base.items() if k != "VLLM_CPU_KVCACHE_SPACE"}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}  # whatever address the machine's name has
    if device == "cpu":
        env.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", KERNELS)
        return env | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                      "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
    env.pop("TORCHDYNAMO_DISABLE", None)  # vLLM 0.32 compiles ahead of time, and fails with it
    gpus = visible_gpus(base)
    return env | {"CUDA_VISIBLE_DEVICES": gpus[index % len(gpus)]}


def router_command(port: int, metrics_port: int) -> list[str]:
    """The command line of a router without workers on 127.0.0.1."""
    return [
        *python_module("vllm_router.launch_router"),
        "--host", "127.0.0.1", "--port", str(port),
        "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
        "--policy", "sticky_least_loaded", "--log-level", "warning",
        # A hung engine is never retried by the router: its requests end by this clock.
        "--request-timeout-secs", str(REQUEST_TIMEOUT_S),
        # Tolerant of an engine that is slow under load, quick enough that new requests avoid a dead one.
        "--health-check-interval-secs", "2", "--health-check-timeout-secs", "5",
        "--health-failure-threshold", "2", "--health-success-threshold", "1",
        "--worker-startup-timeout-secs", str(ADMIT_TIMEOUT_S), "--worker-startup-check-interval", "1",
        # Two tries move a request from a dead engine to a living one; waiting longer is the client's business.
        "--retry-max-retries", "2", "--retry-initial-backoff-ms", "100", "--retry-max-backoff-ms", "1000",
        # The default keeps a circuit open for a minute: with one engine that is a minute of refused requests.
        "--cb-failure-threshold", "5", "--cb-success-threshold", "1", "--cb-timeout-duration-secs", "5",
        "--max-concurrent-requests", "32768", "--queue-size", "32768",
    ]


def router_environment(base: Mapping[str, str]) -> dict[str, str]:
    """``base`` without a proxy for the local engines."""
    return {**base, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
